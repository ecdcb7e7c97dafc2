"""A disk that is watched: it stops the program at the k-th call, fails from it on, or loses its power."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SECTOR = 512


class Killed(BaseException):
    """Where the program ends; no `except OSError` stops it."""


class WatchedDisk:
    """Counts the calls that reach the disk below `folder` and keeps what a loss of power may leave of them.

    Parameters
    ----------
    stop_at : number of the call at which the program is killed; None never.
    torn : whether half of a write that is killed has reached the file.
    full_from : number of the write from which on all writes say that the disk is full; None never.
    before_call : called with the number of each call before it is made, to look at the disk at that moment.

    Syncing is only noted, never done: the model below says what it is good for.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        folder: Path,
        stop_at: int | None = None,
        torn: bool = False,
        full_from: int | None = None,
        before_call: Callable[[int], None] | None = None,
    ) -> None:
        self.folder = folder
        self.before_call = before_call
        self.stop_at, self.torn, self.full_from = stop_at, torn, full_from
        self.calls = self.writes = 0
        self._paths: dict[int, Path] = {}  # of open descriptors
        self._files: dict[int, int] = {}  # descriptor -> file
        self._names: dict[str, int] = {}
        self._synced_names: dict[str, int] = {}
        self._name_changes: list[dict[str, int | None]] = []
        self._synced: dict[int, bytearray] = {}
        self._changes: dict[int, list[tuple[int, bytes] | int]] = {}
        self._real = {
            name: getattr(os, name)
            for name in ("open", "close", "pwrite", "ftruncate", "fsync", "fdatasync", "replace", "unlink")
        }
        for name in self._real:
            monkeypatch.setattr(os, name, getattr(self, f"_{name}"))

    # -- the calls -------------------------------------------------------------------------------------------

    def _count(self, torn: Callable[[], Any] | None = None) -> None:
        if self.calls == self.stop_at:
            self.stop_at = -1  # the dead make no calls that count
            if self.torn and torn is not None:
                torn()
            raise Killed
        if self.before_call is not None:
            self.before_call(self.calls)
        self.calls += 1

    def _open(self, path: Any, flags: int, *rest: Any, **more: Any) -> int:
        inside = Path(path).parent == self.folder
        if inside and flags & os.O_CREAT:
            self._count()
        descriptor = self._real["open"](path, flags, *rest, **more)
        self._paths[descriptor] = Path(path)
        if inside:
            name = Path(path).name
            if name not in self._names:
                number = len(self._synced)
                self._synced[number], self._changes[number] = bytearray(), []
                self._rename({name: number})
            self._files[descriptor] = self._names[name]
            if flags & os.O_TRUNC:
                self._changes[self._names[name]].append(0)
        return descriptor

    def _close(self, descriptor: int) -> None:
        self._paths.pop(descriptor, None)
        self._files.pop(descriptor, None)
        self._real["close"](descriptor)

    def _pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        if descriptor not in self._files:
            return self._real["pwrite"](descriptor, data, offset)

        def write(part: bytes) -> int:
            self._changes[self._files[descriptor]].append((offset, part))
            return self._real["pwrite"](descriptor, part, offset)

        content = bytes(data)
        if self.full_from is not None and self.writes >= self.full_from:
            if self.torn and self.writes == self.full_from and len(content) > 1:
                self.writes += 1
                return write(content[: len(content) // 2])  # the rest will not fit
            raise OSError(errno.ENOSPC, "No space left on device")
        self._count(lambda: write(content[: len(content) // 2]))
        self.writes += 1
        return write(content)

    def _ftruncate(self, descriptor: int, size: int) -> None:
        if descriptor in self._files:
            self._count()
            self._changes[self._files[descriptor]].append(size)
        self._real["ftruncate"](descriptor, size)

    def _fsync(self, descriptor: int) -> None:
        if descriptor in self._files:
            self._count()
            number = self._files[descriptor]
            for change in self._changes[number]:
                _apply(self._synced[number], change)
            self._changes[number].clear()
        elif self._paths.get(descriptor) == self.folder:
            self._count()
            self._synced_names = dict(self._names)
            self._name_changes.clear()

    _fdatasync = _fsync

    def _replace(self, source: Any, target: Any) -> None:
        self._count()
        self._real["replace"](source, target)
        names = [Path(path).name for path in (source, target)]
        self._rename({names[0]: None, names[1]: self._names[names[0]]})

    def _unlink(self, path: Any, **more: Any) -> None:
        if Path(path).parent == self.folder and Path(path).name in self._names:
            self._count()
            self._real["unlink"](path, **more)
            self._rename({Path(path).name: None})
        else:
            self._real["unlink"](path, **more)

    def _rename(self, change: dict[str, int | None]) -> None:
        _name(self._names, change)
        self._name_changes.append(change)

    # -- the power goes --------------------------------------------------------------------------------------

    def lose_power(self, folder: Path, rng: np.random.Generator) -> None:
        """Write to `folder` what may be left: all that was synced, and any part of the rest, by sectors."""
        names = dict(self._synced_names)
        for change in self._name_changes:
            if rng.random() < 0.5:
                _name(names, change)
        share = rng.choice([0.0, 0.5, 0.9, 1.0])
        for name, number in names.items():
            content = bytearray(self._synced[number])
            for change in self._changes[number]:
                if isinstance(change, int):
                    if rng.random() < share:
                        _apply(content, change)
                    continue
                offset, data = change
                for start in range(offset // SECTOR * SECTOR, offset + len(data), SECTOR):
                    first, last = max(start, offset), min(start + SECTOR, offset + len(data))
                    if rng.random() < share:
                        _apply(content, (first, data[first - offset : last - offset]))
            (folder / name).write_bytes(content)


def _apply(content: bytearray, change: tuple[int, bytes] | int) -> None:
    if isinstance(change, int):
        del content[change:]
        content.extend(bytes(change - len(content)))
    else:
        offset, data = change
        content.extend(bytes(max(offset - len(content), 0)))
        content[offset : offset + len(data)] = data


def _name(names: dict[str, int], change: dict[str, int | None]) -> None:
    for name, number in change.items():
        if number is None:
            names.pop(name, None)
        else:
            names[name] = number
