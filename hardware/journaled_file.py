"""A file that is always what it was at its last commit, whatever ends the program or the power."""

from __future__ import annotations

import errno
import io
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hardware.disk import pwrite_all
from hardware.journal import PAGE, TAIL_BYTES, Journal, replay, write_pages

MAX_JOURNAL_BYTES = 8 << 20


class JournaledFile(io.RawIOBase):
    """A file for HDF5 to change as it likes; `commit` makes what it is now its state on disk, all at once.

    What is written beyond the committed end goes straight to the file, since nothing committed refers to
    it. What is written below is kept in memory as pages of 4 KiB, which reads see. A commit
    (1) syncs what was appended, (2) puts the changed pages into the journal beside the file and syncs that,
    (3) writes them into the file. After a crash the journal's last whole record is written again (`replay`),
    and the file cut to its length.

    A disk that fails must not be known to HDF5: it cannot close a file then and the process crashes at its
    end. So the first error is kept for `raise_error` and `commit`, what is written after it stays in memory,
    and the file on disk stays at its last commit.
    """

    error: OSError | None = None
    _descriptor = -1
    _journal: Journal | None = None

    def __init__(self, path: Path, descriptor: int, size: int, journal: Journal) -> None:
        super().__init__()
        self._path = path
        self._descriptor = descriptor
        self._journal = journal
        self._position = 0
        self._size = self._committed = size
        self._pages: dict[int, bytearray] = {}

    @classmethod
    def create(cls, path: Path) -> JournaledFile:
        """A new, empty file; one of the same name is overwritten. OSError where it cannot be."""
        with ExitStack() as undo:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            undo.callback(os.close, descriptor)
            journal = Journal(path, 0)  # says "empty" before the old content goes
            undo.callback(journal.close)
            os.ftruncate(descriptor, 0)
            undo.pop_all()
            return cls(path, descriptor, 0, journal)

    @classmethod
    def reopen(cls, path: Path) -> JournaledFile:
        """The file as of its last commit, to be changed on. OSError where it cannot be."""
        with ExitStack() as undo:
            replay(path)
            descriptor = os.open(path, os.O_RDWR)
            undo.callback(os.close, descriptor)
            os.fsync(descriptor)  # the new journal knows nothing of the old one's pages
            size = os.fstat(descriptor).st_size
            journal = Journal(path, size)
            undo.pop_all()
            return cls(path, descriptor, size, journal)

    @property
    def size(self) -> int:
        """Bytes the file has, committed or not."""
        return self._size

    @property
    def uncommitted_bytes(self) -> int:
        """About how much a commit would write; a part of it is held in memory."""
        return len(self._pages) * PAGE + max(self._size - self._committed, 0)

    # -- what HDF5 calls -------------------------------------------------------------------------------------

    def readable(self) -> bool:
        """True."""
        return True

    def writable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position; returns it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read up to `len(buffer)` bytes at the position; fewer at the file's end."""
        view = memoryview(buffer).cast("B")
        start = self._position
        count = max(min(len(view), self._size - start), 0)
        self._read(view[:count], start)
        self._position = start + count
        return count

    def write(self, data: Any) -> int:
        """Write at the position; never raises for the disk's sake (see `raise_error`)."""
        view = memoryview(data).cast("B")
        start, stop = self._position, self._position + len(view)
        kept = min(max(self._appended_from - start, 0), len(view))  # bytes that stay in memory
        if self.error is None and kept < len(view):
            try:
                pwrite_all(self._descriptor, view[kept:], start + kept)
            except OSError as error:
                self.error = error
        if self.error is not None:
            kept = len(view)
        self._keep(view[:kept], start)
        self._position, self._size = stop, max(self._size, stop)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Cut or extend the file; the position stays."""
        size = self._position if size is None else size
        before, self._size = self._size, size
        if size < before:  # what lies beyond must read as zeros should the file grow again
            border = self._appended_from if self.error is None else before
            self._keep(memoryview(bytes(max(min(before, border) - size, 0))), size)
            if before > border and self.error is None:
                try:
                    os.ftruncate(self._descriptor, max(size, border))
                except OSError as error:
                    self.error = error
        return size

    def flush(self) -> None:
        """Nothing: only a commit reaches the disk."""

    # -- what its owner calls --------------------------------------------------------------------------------

    def raise_error(self) -> None:
        """Raise the OSError that the disk gave, if it gave one."""
        if self.error is not None:
            raise self.error

    def commit(self) -> None:
        """Make what the file is now its state on disk; after an OSError that is this state or the last."""
        self.raise_error()
        assert self._journal is not None
        pages = self._changed_pages()
        if not pages and self._size == self._committed:
            return
        try:
            if os.fstat(self._descriptor).st_size < self._size:
                os.ftruncate(self._descriptor, self._size)
            os.fdatasync(self._descriptor)  # of the pages of the last commit, too
            start = min(max(self._appended_from, self._size - TAIL_BYTES), self._size)
            tail = os.pread(self._descriptor, self._size - start, start)
            self._journal.append(self._size, start, tail, pages)
            write_pages(self._descriptor, pages)
            os.ftruncate(self._descriptor, self._size)
            if self._journal.size > MAX_JOURNAL_BYTES:
                os.fdatasync(self._descriptor)
                self._journal.close()
                self._journal = Journal(self._path, self._size)
        except BaseException as error:  # an interrupt as well: the journal may hold half of this state
            interrupted = OSError(errno.EINTR, "a commit was interrupted")
            self.error = error if isinstance(error, OSError) else interrupted
            raise
        self._committed = self._size
        self._pages.clear()

    def finish(self) -> None:
        """Bring all of it to the disk, so that the file stands without its journal; OSError if not."""
        if self._changed_pages() or self._size < self._committed:
            self.commit()
        self.raise_error()
        os.ftruncate(self._descriptor, self._size)
        os.fsync(self._descriptor)
        self._committed = self._size
        self._pages.clear()

    def close(self) -> None:
        """Close; what was not committed is lost."""
        if not self.closed:
            if self._journal is not None:
                self._journal.close()
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
        super().close()

    # -- inside ----------------------------------------------------------------------------------------------

    @property
    def _appended_from(self) -> int:
        """Where writes go straight to the file: from the first page without a committed byte."""
        return -(-self._committed // PAGE) * PAGE

    def _read(self, view: memoryview, start: int) -> None:
        """Fill `view` with the file's bytes from `start`; where there are none, zeros."""
        self._read_disk(view, start)
        stop = start + len(view)
        for number in range(start // PAGE, -(-stop // PAGE)) if self._pages else ():
            page = self._pages.get(number)
            if page is not None:
                first, last = max(number * PAGE, start), min((number + 1) * PAGE, stop)
                view[first - start : last - start] = page[first - number * PAGE : last - number * PAGE]

    def _read_disk(self, view: memoryview, start: int) -> None:
        done = 0
        try:
            while done < len(view) and (count := os.preadv(self._descriptor, [view[done:]], start + done)):
                done += count
        except OSError as error:
            self.error = self.error or error
        view[done:] = bytes(len(view) - done)

    def _keep(self, view: memoryview, start: int) -> None:
        """Hold bytes in memory, over what the file has there."""
        stop = start + len(view)
        for number in range(start // PAGE, -(-stop // PAGE)) if len(view) else ():
            page = self._pages.get(number)
            if page is None:
                page = self._pages[number] = bytearray(PAGE)
                if start > number * PAGE or stop < (number + 1) * PAGE:
                    self._read_disk(memoryview(page), number * PAGE)
            first, last = max(number * PAGE, start), min((number + 1) * PAGE, stop)
            page[first - number * PAGE : last - number * PAGE] = view[first - start : last - start]

    def _changed_pages(self) -> dict[int, bytes]:
        """The pages in memory that differ from the file's: HDF5 writes whole chunks for a few new rows."""
        changed = {}
        on_disk = bytearray(PAGE)
        for number in sorted(self._pages):
            if number * PAGE < self._size:
                self._read_disk(memoryview(on_disk), number * PAGE)
                if self._pages[number] != on_disk:
                    changed[number] = bytes(self._pages[number])
        return changed
