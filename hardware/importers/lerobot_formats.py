"""Which version of LeRobotDataset a folder holds, and who reads it."""

from __future__ import annotations

from pathlib import Path

from hardware.errors import InputError
from hardware.importers.lerobot import LeRobotSet, read_info
from hardware.importers.lerobot_v21 import LeRobotV21
from hardware.importers.lerobot_v30 import LeRobotV30

KNOWN = "LeRobotDataset v2.1 and v3.0 (the folder that holds meta/info.json)"
READERS: dict[str, type[LeRobotV21] | type[LeRobotV30]] = {"v2.1": LeRobotV21, "v3.0": LeRobotV30}


def detect(folder: Path) -> bool:
    """Whether `folder` is a LeRobotDataset of any version."""
    return (folder / "meta" / "info.json").is_file()


def read(folder: Path, fps: float | None = None) -> LeRobotSet:
    """The set in `folder`; InputError for a version that is not read, and for `fps`, which it has itself."""
    info, sha256 = read_info(folder)
    if fps is not None:
        raise InputError("--fps", f"the set's info.json declares {info.fps:g} fps", "leave --fps out")
    reader = READERS.get(info.codebase_version)
    if reader is None:
        raise InputError(
            folder / "meta" / "info.json",
            f"codebase_version is {info.codebase_version!r}",
            f"read are {', '.join(READERS)}: convert the set with LeRobot's own converter",
        )
    return reader(folder, info, sha256)
