"""What an export made, in words, as JSON, and as the README that travels with the set."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hardware.importers.lerobot import ranges
from hardware.recording import Recording, software_versions

FACTS = "jointprobe.json"
REASONS = {
    "joints": "no joint samples around the frame's time",
    "actions": "before the first action",
    "unpaired": "a stream ended before the others",
}


@dataclass(frozen=True)
class ExportedEpisode:
    """One episode of the set, numbered there by its place in the report's list.

    Attributes
    ----------
    episode : its number in the recording.
    rows, dropped : rows exported, and rows left out by reason.
    rate_hz : rows a second as captured (median step), or None for a single row.
    uneven : steps between rows that are longer than 1.5 periods.
    start_monotonic_ns, start_wall_ns : both clocks when it began.
    """

    episode: int
    rows: int
    dropped: dict[str, int]
    rate_hz: float | None
    uneven: int
    start_monotonic_ns: int
    start_wall_ns: int


@dataclass(frozen=True)
class ExportReport:
    """What an export made.

    Attributes
    ----------
    dataset : folder of the set.
    lerobot : version of the LeRobot that wrote it.
    fps, rate_hz : rows a second as LeRobot will assume them, and (median) as they were captured.
    views : views exported, the anchor first, each stored as `stored` (`video` or `images`).
    units, action_units : unit of each value of `observation.state` and of `action`, in words. Without actions
        in the recording there is no `action`: LeRobot reads such a set and cannot train on it.
    episodes : what became of each; `left_out` are episodes without frames of a view.
    """

    dataset: Path
    lerobot: str
    fps: int
    rate_hz: float | None
    views: list[str]
    stored: str
    task: str
    units: dict[str, str]
    action_units: dict[str, str]
    episodes: list[ExportedEpisode]
    left_out: list[int] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows of the set, each with a frame of every view."""
        return sum(episode.rows for episode in self.episodes)

    @property
    def dropped(self) -> dict[str, int]:
        """Rows left out, by reason."""
        total = Counter[str]()
        for episode in self.episodes:
            total.update(episode.dropped)
        return dict(total)

    @property
    def notes(self) -> list[str]:
        """What a person should know about the set, a line each."""
        lines = []
        if not self.action_units:
            lines.append("no action: the recording holds none; LeRobot reads the set and cannot train on it")
        if self.rate_hz is not None and abs(self.rate_hz / self.fps - 1) > 0.02:
            lines.append(
                f"LeRobot takes the rows as {self.fps} a second, they were captured at {self.rate_hz:.2f}: "
                "use time_ns where time matters"
            )
        uneven = sum(episode.uneven for episode in self.episodes)
        if uneven:
            lines.append(f"{uneven} steps between rows are longer than 1.5 periods: rows are missing there")
        lines += [
            f"{count} rows dropped: {REASONS.get(why, f'no frame of {why} close enough')}"
            for why, count in self.dropped.items()
        ]
        if self.left_out:
            lines.append(f"left out: episodes {ranges(self.left_out)}, which lack frames of a view")
        return lines

    def lines(self) -> list[str]:
        """What was made and what to know about it, for a terminal."""
        views = ", ".join(self.views)
        made = f"{self.dataset}: {len(self.episodes)} episodes, {self.rows} rows at {self.fps} a second"
        return [f"{made}, views {views} as {self.stored}", *(f"  {note}" for note in self.notes)]

    def describe(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "dataset": str(self.dataset), "rows": self.rows, "dropped": self.dropped}


def write_description(root: Path, recording: Recording, report: ExportReport) -> None:
    """jointprobe.json and README.md: where the set comes from, its units, its clocks, what was left out."""
    facts = {
        "made_of": {
            "recording": recording.folder.resolve().name,
            "manifest_sha256": recording.manifest_sha256,
            "robot": recording.info.robot,
            "motion": recording.info.motion,
        },
        **{key: value for key, value in report.describe().items() if key != "dataset"},
        "software": software_versions("lerobot", "av"),
    }
    (root / FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    (root / "README.md").write_text(readme(recording, report), encoding="utf-8")


def readme(recording: Recording, report: ExportReport) -> str:
    """The text of the set's README.md."""
    info, name = recording.info, recording.folder.resolve().name
    same = report.action_units == report.units
    tables = {
        "observation.state` and `action" if same else "observation.state": report.units,
        "action": {} if same else report.action_units,
    }
    units = [
        f"| `{column}` | `{value}` | {unit} |"
        for column, values in tables.items()
        for value, unit in values.items()
    ]
    return "\n".join(
        [
            f"# {report.dataset.name}\n",
            f"A LeRobotDataset (v3.0) of {len(report.episodes)} episodes and {report.rows} rows, made by",
            f"`jointprobe export` of the recording `{name}` ({info.robot}, {info.motion}).",
            f"The SHA-256 of its manifest is `{recording.manifest_sha256}`.\n",
            "| column | value | unit |",
            "|---|---|---|",
            *units,
            "",
            *(f"- {line}" for line in (*_meanings(recording, report), *report.notes)),
            "",
            f"`{FACTS}` holds the same for machines: each episode's number in the recording, its clocks and",
            "its dropped rows.\n",
        ]
    )


def _meanings(recording: Recording, report: ExportReport) -> list[str]:
    """How the rows were made, a line each."""
    others = "; the other views give their nearest frame" if len(report.views) > 1 else ""
    rows = f"A row is a frame of `{report.views[0]}`{others}; the joints are interpolated at its time."
    clock = (
        "`time_ns` is when the joints were there and `time_ns.VIEW` when that frame was captured, in int64 "
        "nanoseconds of CLOCK_MONOTONIC."
    )
    if recording.info.pairing == "row":
        rows = "A row is one of the imported set: frames and joints pair by number, as they did there."
        clock = (
            "`time_ns` is the imported set's timestamp and `time_ns.VIEW` the video's, in int64 nanoseconds."
        )
    lines = [rows]
    if report.action_units and recording.info.actions is not None:
        lines.append(f"`action` is what was sent last at that time ({recording.info.actions.meaning}).")
    return [
        *lines,
        f"{clock} LeRobot's own `timestamp` is frame_index / {report.fps} and no measurement.",
        "LeRobot's statistics of the `time_ns` columns mean nothing: their squares do not fit 64 bits.",
        "Frames are PNG images in the tables: the pixels are those of the recording."
        if report.stored == "images"
        else "Frames are AV1 video by LeRobot's encoder: small, and lossy (`--images` keeps the pixels).",
    ]
