"""Files, counts, gaps and recorded faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from hardware.checks.check import Check, State, and_more, counted, in_words, not_testable, readable, short
from hardware.episode import Episode, JointLog
from hardware.errors import InputError
from hardware.recording import Recording


def read_joints(episodes: list[Episode]) -> tuple[dict[int, JointLog], dict[int, str]]:
    logs, unreadable = {}, {}
    for episode in episodes:
        try:
            logs[episode.index] = episode.joints()
        except InputError as error:
            unreadable[episode.index] = str(error)
    return logs, unreadable


MISREAD = {
    f"bus_{kind}" for kind in ("timeout", "header", "wrong_id", "wrong_length", "checksum", "late", "busy")
}
FEW_MISREAD = 0.05  # of the rows: gaps of single samples, over which alignment interpolates


def check_hashes(episodes: list[Episode]) -> Check:
    wrong = {}
    for episode in episodes:
        try:
            episode.verify()
        except InputError as error:
            wrong[episode.index] = error.problem
    if not wrong:
        return Check(
            "hashes", "pass", f"{counted(len(episodes), 'episode file')} with the sha256 of the manifest"
        )
    first = next(iter(wrong))
    return Check(
        "hashes",
        "fail",
        f"episode {first} {wrong[first]}{and_more(wrong)}",
        {"episodes": list(wrong)},
        "restore these files from a copy",
    )


def check_contiguity(recording: Recording) -> Check:
    """Every episode that was meant to be there is sealed and listed, and no other file lies beside them."""
    indices = recording.episode_indices
    info = recording.info
    meant = (info.source or {}).get("episodes") or range(int(info.motion_settings.get("episodes") or 0))
    unfinished = sorted(set(meant) - set(indices))
    listed = {Path(line.file).name for line in recording.manifest}
    unlisted = sorted(
        path.name for path in (recording.folder / "episodes").iterdir() if path.name not in listed
    )
    if unfinished or unlisted:
        parts = []
        if unfinished:
            parts.append(
                f"{len(unfinished)} of {counted(len(meant), 'episode')} not sealed: {short(unfinished)}"
            )
        if unlisted:
            parts.append(f"files that the manifest lacks: {', '.join(unlisted[:5])}")
        return Check(
            "contiguity",
            "fail",
            "; ".join(parts),
            {"episodes": unfinished, "unlisted": unlisted},
            "it was interrupted: run the same command again, or jointprobe record --recover, to seal what is "
            "there; move *.unreadable files elsewhere",
        )
    absent = sorted(set(range(indices[0], indices[-1] + 1)) - set(indices))
    evidence = {"episodes": absent, "first": indices[0], "last": indices[-1], "count": len(indices)}
    said = list((recording.info.source or {}).get("missing", []))
    if said:
        evidence["missing_in_source"] = said
    if not absent:
        gap = " without a gap" if len(indices) > 1 else ", the only one"
        message = in_words(indices) + gap
        state: State = "pass"
    else:
        lacking = counted(len(absent), "episode")
        message = f"{lacking} absent between {indices[0]} and {indices[-1]}: {short(absent)}"
        state = "warn"
    if said:
        message += f"; the source lacks: {'; '.join(said)}"
    return Check(
        "contiguity", state, message, evidence, "name episodes by number, never by position" if absent else ""
    )


def check_joints_readable(unreadable: dict[int, str]) -> Check:
    sound = "all joint rows can be read and are finite numbers"
    return readable("joints", unreadable, sound, "restore these files from a copy, or leave the episodes out")


def check_counts(recording: Recording, logs: dict[int, JointLog]) -> Check:
    """Manifest against files; and where rows pair by number, rows against frames."""
    if not logs:
        return not_testable("counts", "no episode can be read")
    problems: dict[int, str] = {}
    for index, log in logs.items():
        episode = recording.episode(index)
        rows = len(log.time_ns)
        counts = {view: _frame_count(episode, view) for view in recording.info.view_names}
        claimed = {view: episode.line.frames.get(view, 0) for view in counts}
        if rows != episode.line.joint_rows or counts != claimed:
            problems[index] = (
                f"the file holds {_frames_in_words(rows, counts)}, "
                f"the manifest says {_frames_in_words(episode.line.joint_rows, claimed)}"
            )
        elif recording.info.pairing == "row":
            apart = {view: count for view, count in counts.items() if count not in (0, rows)}
            if apart:
                said = ", ".join(f"{count} of {view}" for view, count in apart.items())
                problems[index] = f"{counted(rows, 'row')}, but frames: {said}: the rest is not paired"
    rows, seconds = (
        sum(getattr(line, key) for line in recording.manifest) for key in ("joint_rows", "seconds")
    )
    frames = {
        view: sum(line.frames.get(view, 0) for line in recording.manifest)
        for view in recording.info.view_names
    }
    evidence = {"rows": rows, "frames": frames, "seconds": round(seconds, 3), "episodes": list(problems)}
    if not problems:
        message = f"as the manifest says: {_frames_in_words(rows, frames)}"
        return Check("counts", "pass", message, evidence)
    first = next(iter(problems))
    return Check(
        "counts",
        "fail",
        f"episode {first}: {problems[first]}{and_more(problems)}",
        evidence,
        "leave these episodes out of studies, or import the set again",
    )


def _frames_in_words(rows: int, frames: Mapping[str, int]) -> str:
    """`5,541 rows, frames: 1,810 of cam0, 1,810 of cam1`"""
    said = ", ".join(f"{count:,} of {view}" for view, count in frames.items())
    return f"{rows:,} row{'' if rows == 1 else 's'}" + (f", frames: {said}" if said else ", no frames")


def _frame_count(episode: Episode, view: str) -> int:
    try:
        return episode.frame_count(view)
    except InputError:
        return 0


def check_faults(episodes: list[Episode]) -> Check:
    kinds: Counter[str] = Counter()
    shown: list[str] = []
    touched = []
    for episode in episodes:
        try:
            faults = episode.faults()
        except InputError as error:
            faults = [{"kind": "unreadable", "message": str(error)}]
        for fault in faults:
            if fault["kind"] not in kinds:
                shown.append(f"episode {episode.index}: {fault['message']}")
            kinds[fault["kind"]] += 1
        if faults:
            touched.append(episode.index)
    if not kinds:
        return Check("faults", "pass", "no fault was recorded")
    said = ", ".join(f"{kind} {counted(count, 'time')}" for kind, count in kinds.items())
    misread = sum(count for kind, count in kinds.items() if kind in MISREAD)
    rows = sum(episode.line.joint_rows for episode in episodes)
    if misread == sum(kinds.values()) and misread <= FEW_MISREAD * rows:
        readings = counted(misread, "reading")
        message = f"{readings} of the joints failed and left no row, {misread / rows:.1%}: {said}"
        return Check("faults", "pass", message, {"kinds": dict(kinds), "episodes": touched})
    return Check(
        "faults",
        "warn",
        f"{said}, in {in_words(touched)}; first of each: {'; '.join(shown)}",
        {"kinds": dict(kinds), "episodes": touched},
        "leave these episodes or views out of studies that need them",
    )
