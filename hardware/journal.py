"""A file's journal: the pages that its next state changes, on disk before the file itself is touched.

    header   magic, sha256 of the file's name, length of the file; sha256 of these
    record   magic, length of the file, start and sha256 of the last bytes appended, number of pages,
             page numbers, pages; sha256 of all of this
    record   ...

Only the last record that is whole counts: what those before it changed was synced before it was written.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from hardware.disk import pwrite_all, write_atomically

PAGE = 4096
TAIL_BYTES = 64 << 10  # how much of what was appended a record vouches for
MAX_READ_BYTES = 1 << 30
HEADER = struct.Struct("<8s32sQ")
RECORD = struct.Struct("<8sQQ32sI")
STARTED, CHANGED = b"jpjrnl/1", b"jpcommit"
DIGEST_BYTES = 32


def journal_path(path: Path) -> Path:
    """Where the journal of the file `path` lies."""
    return path.with_name(path.name + ".journal")


class Journal:
    """The journal of `path`, begun anew: the file is whole as its first `length` bytes stand on disk."""

    def __init__(self, path: Path, length: int) -> None:
        self.path = journal_path(path)
        head = HEADER.pack(STARTED, _sha256(path.name.encode()), length)
        write_atomically(self.path, head + _sha256(head))
        self._descriptor = os.open(self.path, os.O_WRONLY)
        self.size = HEADER.size + DIGEST_BYTES

    def append(self, length: int, tail_start: int, tail: bytes, pages: Mapping[int, bytes]) -> None:
        """Put a new state of the file on disk: its `length`, and the `pages` that differ, by number.

        Bytes that were appended stand in the file already, synced; `tail`, from `tail_start`, are the last.
        """
        head = RECORD.pack(CHANGED, length, tail_start, _sha256(tail), len(pages))
        body = b"".join((head, struct.pack(f"<{len(pages)}Q", *pages), *pages.values()))
        pwrite_all(self._descriptor, body + _sha256(body), self.size)
        os.fdatasync(self._descriptor)
        self.size += len(body) + DIGEST_BYTES

    def close(self) -> None:
        """Close; the journal stays on disk."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def replay(path: Path) -> bool:
    """Bring the file `path` to its last commit, as its journal says; whether there was a journal to follow.

    May be killed, and repeated; what it writes is not synced. A journal that is missing, that has no header
    or is another file's leaves the file as it is.
    """
    try:
        with journal_path(path).open("rb") as file:
            data = file.read(MAX_READ_BYTES)
    except FileNotFoundError:
        return False
    head, digest = data[: HEADER.size], data[HEADER.size : HEADER.size + DIGEST_BYTES]
    if len(digest) < DIGEST_BYTES or _sha256(head) != digest:
        return False
    magic, name, length = HEADER.unpack(head)
    if magic != STARTED or name != _sha256(path.name.encode()):
        return False
    tail_start, tail_digest, pages = length, _sha256(b""), dict[int, bytes]()
    place = HEADER.size + DIGEST_BYTES
    while len(data) - place >= RECORD.size + DIGEST_BYTES:
        magic, *facts, count = RECORD.unpack_from(data, place)
        end = place + RECORD.size + count * (8 + PAGE)
        if magic != CHANGED or data[end : end + DIGEST_BYTES] != _sha256(data[place:end]):
            break  # torn: the run ended while it was written
        length, tail_start, tail_digest = facts
        numbers = struct.unpack_from(f"<{count}Q", data, place + RECORD.size)
        starts = range(end - count * PAGE, end, PAGE)
        pages = {number: data[start : start + PAGE] for number, start in zip(numbers, starts)}
        place = end + DIGEST_BYTES
    descriptor = os.open(path, os.O_RDWR)
    try:
        appended = min(max(length - tail_start, 0), TAIL_BYTES)
        if _sha256(os.pread(descriptor, appended, tail_start)) != tail_digest:
            return False  # what it says was appended is not there: the journal of another file
        write_pages(descriptor, pages)
        os.ftruncate(descriptor, length)
    finally:
        os.close(descriptor)
    return True


def write_pages(descriptor: int, pages: Mapping[int, bytes]) -> None:
    """Write pages in place, neighbours in one write."""
    for first, run in _runs(pages):
        pwrite_all(descriptor, b"".join(pages[number] for number in run), first * PAGE)


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
    run: list[int] = []
    for number in sorted(numbers):
        if run and number != run[-1] + 1:
            yield run[0], run
            run = []
        run.append(number)
    if run:
        yield run[0], run


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
