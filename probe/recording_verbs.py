"""The verbs of recordings: bring them, look at them, hand them on."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from probe.encoder_import import holds_checkpoint, import_encoder, refuse_options
from probe.terminal import DONE, FAILED, INTERRUPTED, TERMINATED, Terminal
from probe.verbs import Json, Quiet, RecordingFolder, app, episodes_of

FAULTS_SHOWN = 6


@app.command("import")
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A folder: a LeRobotDataset (v2.1, v3.0), parquet files with pictures, or ALOHA's HDF5; or "
            "an HDF5 file of LeWM or stable-worldmodel.",
        ),
    ],
    to: Annotated[Path, typer.Option("--to", help="The recording to make, e.g. recordings/bowls.")],
    unit: Annotated[
        str | None,
        typer.Option(
            "--unit",
            help="ticks, degrees, normalized or radians; never guessed: without it you see ranges.",
        ),
    ] = None,
    calibration: Annotated[
        list[str] | None,
        typer.Option(
            "--calibration",
            metavar="[PREFIX=]FILE",
            help="LeRobot calibration JSON, new or legacy form; arm1=FILE for a set with several arms.",
        ),
    ] = None,
    fps: Annotated[
        float | None,
        typer.Option("--fps", help="Rows a second, of a set that declares none; its own stamps are kept."),
    ] = None,
    joints_from: Annotated[
        str | None,
        typer.Option("--joints-from", help="LeWM's HDF5: the column that holds the joints. (default: qpos)"),
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Note counts that disagree as faults instead of stopping.")
    ] = False,
    view: Annotated[
        str | None, typer.Option("--view", help="A LeWM's weights: the camera that it is to see.")
    ] = None,
    trust_pickle: Annotated[
        bool,
        typer.Option(
            "--trust-pickle",
            help="A pickled LeWM (*_object.ckpt): take its weights out, in a process of its own.",
        ),
    ] = False,
    actions_of: Annotated[
        Path | None,
        typer.Option(
            "--actions-of",
            help="A LeWM's weights: the imported recording that it was trained on. Its actions are then "
            "standardised as they were in training, and it predicts.",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Import recordings of another format, counting everything twice; or a LeWM's weights.

    Rows, decoded frames and metadata must agree; timestamps of the source are kept as they are beside the
    video's own. Stopped half way, the same command goes on where it was.

    Weights (weights.pt, *.ckpt, *.safetensors, or their folder) become an encoder's folder that a study can
    load.
    """
    terminal = Terminal(json, quiet)
    if holds_checkpoint(source):
        of_recordings = {
            "--unit": unit,
            "--calibration": calibration,
            "--fps": fps,
            "--joints-from": joints_from,
            "--lenient": lenient,
        }
        refuse_options(of_recordings, "weights")
        import_encoder(terminal, source, to, view, trust_pickle, actions_of)
        return
    refuse_options({"--view": view, "--trust-pickle": trust_pickle, "--actions-of": actions_of}, "recordings")
    from hardware.importers import import_recording
    from hardware.recording import Recording

    with terminal.progress() as progress:
        report = import_recording(
            source,
            to,
            unit=unit,
            calibrations=_calibrations(calibration or []),
            lenient=lenient,
            fps=fps,
            joints_from=joints_from,
            progress=progress,
        )
    recording = Recording.open(report.recording)
    rows = sum(line.joint_rows for line in recording.manifest)
    terminal.say(
        f": {len(recording.manifest)} episodes, {rows:,} rows, "
        f"views: {', '.join(recording.info.view_names) or 'none'}",
        head=str(to),
    )
    for line in report.missing:
        terminal.say(f"  not here: {line}")
    for line in report.faults[:FAULTS_SHOWN]:
        terminal.say(f"  fault: {line}")
    if len(report.faults) > FAULTS_SHOWN:
        terminal.say(f"  and {len(report.faults) - FAULTS_SHOWN} more faults: jointprobe check {to}")
    terminal.result(
        {
            "recording": str(to),
            "episodes": len(recording.manifest),
            "joint_rows": rows,
            "views": recording.info.view_names,
            "missing": report.missing,
            "faults": report.faults,
            "manifest_sha256": recording.manifest_sha256,
        }
    )


@app.command()
def record(
    to: Annotated[
        Path | None, typer.Option("--to", help="The recording to make or to continue, e.g. recordings/bowls.")
    ] = None,
    motion: Annotated[
        Literal["demos", "observe", "teleop", "walk", "replay"] | None,
        typer.Option(
            "--motion",
            help="demos (simulated pick and place), observe (the arm is moved by hand and only read), teleop "
            "(it follows a leader arm), walk (the isotropic OU random walk), replay (targets of another "
            "recording).",
        ),
    ] = None,
    robot: Annotated[
        Literal["sim", "twin", "so101"],
        typer.Option(
            "--robot",
            help="so101: a real arm. twin: emulated bus and cameras, on the path of the real ones, in real "
            "time. sim: the simulated arm directly, as fast as it goes.",
        ),
    ] = "sim",
    episodes: Annotated[
        int | None,
        typer.Option(
            "--episodes",
            min=1,
            help="How many whole ones the recording holds in the end. (default: 36; arm 10; replay: as "
            "its source)",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", help="Length of an episode; without it keys end it, or its motion (a walk: 30 s)."
        ),
    ] = None,
    port: Annotated[
        str | None, typer.Option("--port", help="The arm's serial port, e.g. /dev/serial/by-id/...")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", help="The arm's calibration, as LeRobot wrote it (JSON).")
    ] = None,
    view: Annotated[
        list[str] | None,
        typer.Option(
            "--view",
            metavar="NAME[=SOURCE]",
            help="A camera: front=/dev/v4l/by-id/..., wrist=http://..., top=2 (index) or a video file. In "
            "simulation the name alone. (default there: front, wrist)",
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--size", metavar="WxH", help="Asked of the cameras. (default: theirs; sim 96, twin 320x240)"
        ),
    ] = None,
    fps: Annotated[
        float | None,
        typer.Option("--fps", min=1, help="Asked of the cameras. (default: theirs; sim 10, twin 15)"),
    ] = None,
    joints_hz: Annotated[float, typer.Option("--joints-hz", help="Rate of the joint stream.")] = 100.0,
    rest: Annotated[
        float, typer.Option("--rest", min=0, help="Seconds between episodes, to set the scene.")
    ] = 0.0,
    leader_port: Annotated[
        str | None, typer.Option("--leader-port", help="teleop: the leader's port.")
    ] = None,
    leader_calibration: Annotated[
        Path | None, typer.Option("--leader-calibration", help="teleop: the leader's calibration.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", help="replay: the recording whose targets are sent again.")
    ] = None,
    replay_episode: Annotated[
        int | None,
        typer.Option("--replay-episode", help="replay: that episode alone. (default: the same number)"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Everything random comes from it.")] = 0,
    mjcf: Annotated[
        Path | None, typer.Option("--mjcf", help="Your own MuJoCo model with the same joint names.")
    ] = None,
    recover: Annotated[
        Path | None,
        typer.Option(
            "--recover", metavar="DIR", help="Seal what a killed run left behind in DIR, and do no more."
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Record episodes: on an SO-101, on its emulated twin, or in simulation.

    In a terminal, without --seconds, Enter says when the arm is powered and when an episode by hand begins
    and ends; space pauses a motion, r records the running episode again, q seals and quits, x lets go of the
    arm at once. q, Ctrl-C, SIGTERM and the end of the session seal what is there; a powered arm then goes
    back slowly to where it was found, and its torque fades out. A second Ctrl-C, and x, let it fade out where
    the arm is.

    Run again, it goes on where it stopped. Episodes that were cut short are kept, marked with a fault, and do
    not count towards --episodes.

    jointprobe record --robot so101 --port /dev/ttyACM0 --calibration arm.json
    --view front=/dev/v4l/by-id/... --motion observe --to recordings/bowls
    """
    terminal = Terminal(json, quiet)
    from hardware.errors import InputError

    if recover is not None:
        _recover(terminal, recover)
        return
    if to is None or motion is None:
        missing = "--to" if to is None else "--motion"
        raise InputError(missing, "is missing", "see jointprobe record --help")
    fitting = ("demos", "walk") if robot == "sim" else ("observe", "teleop", "walk", "replay")
    if motion not in fitting:
        raise InputError(
            "--motion", f"{motion} is not there for --robot {robot}", f"use {', '.join(fitting)}"
        )
    if robot == "sim":
        given = {
            "--port": port,
            "--calibration": calibration,
            "--replay": replay,
            "--leader-port": leader_port,
        }
        for name, value in given.items():
            if value is not None:
                raise InputError(name, "is of no use in simulation", "add --robot so101, or leave it out")
        _record_simulated(
            terminal, to, motion, episodes or 36, seconds, view or [], size, fps or 10, joints_hz, seed, mjcf
        )
        return
    from probe.live_view import live_view
    from probe.recording import ArmSession, record_on_arm, size_of, views_of

    session = ArmSession(
        to=to,
        robot=robot,
        motion=motion,  # type: ignore[arg-type]
        episodes=episodes or (_count(replay) if replay is not None and replay_episode is None else 10),
        seconds=seconds,
        port=port,
        calibration=calibration,
        leader_port=leader_port,
        leader_calibration=leader_calibration,
        views=views_of(view) if view else None,
        replay=replay,
        replay_episode=replay_episode,
        joints_hz=joints_hz,
        rest_s=rest,
        size=size_of(size),
        fps=fps,
        seed=seed,
        mjcf=mjcf,
    )
    with live_view(terminal.err, quiet, screen=not json) as view_of:
        report = record_on_arm(session, view=view_of.show, word=view_of.word)
    terminal.say(f": {len(report.sealed)} sealed now, ended by: {report.ended}", head=str(to))
    terminal.result(
        {
            "recording": str(to),
            "sealed": report.sealed,
            "ended": report.ended,
            "problem": report.problem,
            "faults": dict(report.faults),
        }
    )
    if report.problem:
        kept = "what was captured is sealed" if report.sealed else "nothing was captured"
        terminal.note(f"stopped: {report.problem}; {kept}", style="bold red")
        raise typer.Exit(FAILED)
    if report.ended.startswith("SIG"):  # not through typer, for which 130 is an interrupt nobody dealt with
        sys.exit(INTERRUPTED if report.ended == "SIGINT" else TERMINATED)


def _record_simulated(
    terminal: Terminal,
    to: Path,
    motion: Any,
    episodes: int,
    seconds: float | None,
    views: list[str],
    size: str | None,
    fps: float,
    joints_hz: float,
    seed: int,
    mjcf: Path | None,
) -> None:
    from probe.recording import size_of
    from sim.record import record_simulated

    with terminal.progress() as progress:
        recording = record_simulated(
            to,
            motion=motion,
            episodes=episodes,
            seed=seed,
            views=views or ["front", "wrist"],
            fps=fps,
            joints_hz=joints_hz,
            image_size=size_of(size) or 96,
            mjcf=mjcf,
            seconds=seconds,
            progress=progress,
        )
    terminal.say(f": {len(recording.manifest)} episodes of {motion}", head=str(to))
    terminal.result(
        {
            "recording": str(to),
            "episodes": len(recording.manifest),
            "manifest_sha256": recording.manifest_sha256,
        }
    )


def _count(recording: Path) -> int:
    from hardware.recording import Recording

    return len(Recording.open(recording).manifest)


def _recover(terminal: Terminal, folder: Path) -> None:
    from hardware.recovery import recover

    with terminal.progress() as progress:
        report = recover(folder, progress=progress)
    for line in report.lines():
        terminal.say(line)
    terminal.result({"recording": str(folder), **asdict(report)})


@app.command()
def check(
    recording: RecordingFolder,
    reference: Annotated[
        Path | None,
        typer.Option(
            "--reference",
            help="A good recording of the same set-up: shows swapped cameras and colours. Needs frames.",
        ),
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            "--expect",
            metavar="VIEW=GROUP",
            help="The joints a view is meant to see best, e.g. cam0=arm1; again for each view. Needs frames.",
        ),
    ] = None,
    frames: Annotated[
        bool,
        typer.Option(
            "--frames/--no-frames",
            help="Decode every frame, or check files and joints alone: that serves neither --expect nor "
            "--reference.",
        ),
    ] = True,
    pictures: Annotated[
        Path | None,
        typer.Option(
            "--pictures",
            metavar="DIR",
            help="Save a picture of each warning and failure, and, with frames, a heat map of views against "
            "joints.",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Tell what each check that passed saw, too.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check a recording: files, clocks, joints, units, actions, frames, and whether frames and joints belong
    together.

    Nothing is changed. Every finding is told at once, with its remedy; exit code 1 when one fails. A check
    that had nothing to look at, or too little to tell, is "not testable": no pass, and no alarm.
    """
    terminal = Terminal(json, quiet)
    from hardware.recording import Recording
    from probe.checks import check_recording, look
    from probe.checks.reference import check_reference, damaged_episodes
    from probe.checks.screen import check_screen

    opened = Recording.open(recording)
    expected = _expected(expect or [], opened)
    if pictures is not None:
        from probe.checks.saving import picture_folder

        picture_folder(pictures, opened)  # said now, not after minutes of looking
    other = None
    if reference is not None:
        other = Recording.open(reference)
        check_reference(other, damaged_episodes(other, ()))  # as early, where none of its files can serve
    with terminal.progress() as progress:
        looks = look(opened, progress) if frames and opened.info.views else []
        checks = check_recording(
            opened, frames=frames, looks=looks, reference=other, expect=expected, progress=progress
        )
    if terminal.talks:
        for block in check_screen(checks, terminal.out.width, verbose):
            terminal.out.print(block)
    if pictures is not None:
        from probe.checks.saving import save_pictures

        for line in save_pictures(pictures, opened, checks, looks).lines():
            terminal.say(line)
    failed = [one.name for one in checks if one.state == "fail"]
    told = [{key: value for key, value in vars(one).items() if key != "picture"} for one in checks]
    terminal.result({"recording": str(recording), "checks": told, "failed": failed})
    raise typer.Exit(FAILED if failed else DONE)


def _expected(given: list[str], recording: Any) -> dict[str, str]:
    """`VIEW=GROUP`, each checked against what the recording has."""
    from hardware.errors import InputError
    from probe.checks.view_map import joint_groups

    groups = joint_groups(recording.info.joint_names)
    found: dict[str, str] = {}
    for text in given:
        view, mark, group = text.partition("=")
        if not mark:
            raise InputError("--expect", f"{text!r} is not VIEW=GROUP", "for example --expect cam0=arm1")
        if view not in recording.info.view_names:
            names = ", ".join(recording.info.view_names) or "none"
            raise InputError("--expect", f"{view!r} is not a view of the recording", f"its views: {names}")
        if group not in groups:
            raise InputError(
                "--expect", f"{group!r} is not a group of its joints", f"its groups: {', '.join(groups)}"
            )
        if found.setdefault(view, group) != group:
            raise InputError(
                "--expect",
                f"{view!r} is declared on {found[view]} and on {group}",
                "name the one group that the view is meant to see best",
            )
    return found


@app.command()
def show(
    recording: RecordingFolder,
    episode: Annotated[int | None, typer.Option("--episode", help="Which one. (default: the first)")] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="The picture to write. (default: NAME-EPISODE.png, here)")
    ] = None,
    frames: Annotated[int, typer.Option("--frames", min=1, max=40, help="Frames of each view.")] = 8,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw an episode: frames of each view, the joints' traces with targets, knots, faults; rates, jitter."""
    terminal = Terminal(json, quiet)
    from hardware.recording import Recording
    from probe.show import draw_recording

    path, facts = draw_recording(Recording.open(recording), episode, to, frames=frames)
    terminal.say(f" {path}", head="wrote")
    terminal.result({"picture": str(path), **facts})


export = typer.Typer(no_args_is_help=True, help="Write recordings in the formats of others.")
app.add_typer(export, name="export")


@export.command("recording")
def export_recording(
    recording: RecordingFolder,
    to: Annotated[Path, typer.Option("--to", help="The folder to make; lewm: the file.")],
    format: Annotated[
        Literal["lerobot", "lewm"],
        typer.Option("--format", help="A LeRobotDataset, or the HDF5 that LeWM and stable-worldmodel read."),
    ] = "lerobot",
    anchor: Annotated[
        str | None,
        typer.Option(
            "--anchor", help="The view whose frames make the rows; lewm: its `pixels`. (default: the first)"
        ),
    ] = None,
    view: Annotated[
        list[str] | None, typer.Option("--view", help="A view to take along, again for each. (default: all)")
    ] = None,
    episodes: Annotated[
        str | None, typer.Option("--episodes", help="Which, e.g. 0-23. (default: all)")
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            "--image-size", min=1, help="lewm: pixels a side to resize to, e.g. 224. (default: as recorded)"
        ),
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="lerobot: what the arm does, in words.")] = None,
    images: Annotated[
        bool,
        typer.Option(
            "--images",
            help="lerobot: images as they were recorded, in place of its smaller and lossy video.",
        ),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Export a recording as a LeRobotDataset (needs the extra: pip install 'jointprobe\\[lerobot]'), or as
    HDF5 for LeWM and stable-worldmodel.

    One row a frame of the anchor view; actions are the targets that were sent.

    lerobot: angles are in degrees and a gripper whose travel is known in 0..100, as LeRobot has them; true
    capture times stand in columns of their own. Research that looks at pixels wants --images: the video's
    compression smears slow motion.

    lewm: one file; joints stay in the recording's units, frames are kept losslessly, and the action of each
    episode's last row is NaN, as that format has it.
    """
    terminal = Terminal(json, quiet)
    from hardware.exporters import ExportReport, WorldModelReport, export_lerobot, export_world_model
    from hardware.recording import Recording

    report: ExportReport | WorldModelReport
    opened = Recording.open(recording)
    numbers = episodes_of(episodes) if episodes else None
    with terminal.progress() as progress:
        if format == "lewm":
            refuse_options({"--task": task, "--images": images}, "--format lewm")
            report = export_world_model(
                opened,
                to,
                anchor=anchor,
                views=view or None,
                episodes=numbers,
                image_size=image_size,
                progress=progress,
            )
        else:
            refuse_options({"--image-size": image_size}, "--format lerobot")
            report = export_lerobot(
                opened,
                to,
                anchor=anchor,
                views=view or None,
                episodes=numbers,
                task=task,
                images=images,
                progress=progress,
            )
    for line in report.lines():
        terminal.say(line)
    terminal.result({"format": format, **report.describe()})


def _calibrations(options: list[str]) -> dict[str, Path]:
    """`PREFIX=FILE` or `FILE` (prefix ''), as given to --calibration."""
    from hardware.errors import InputError

    found: dict[str, Path] = {}
    for text in options:
        prefix, mark, file = text.partition("=")
        if not mark:
            prefix, file = "", text
        if prefix in found:
            raise InputError("--calibration", f"the prefix {prefix!r} is given twice", "one file an arm")
        found[prefix] = Path(file)
    return found
