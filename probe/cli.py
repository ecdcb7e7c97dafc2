"""`jointprobe VERB`: each verb is one function that a notebook can call as well; this file parses and prints.

Exit codes: 0 done, 1 a check or a verification failed, 2 bad input. Heavy modules are imported inside the
verbs, so that `jointprobe --help` answers at once.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from probe.terminal import DONE, EXPECTED, FAILED, INTERRUPTED, Terminal, disk_error

FAULTS_SHOWN = 6

# the base of typer's own errors: click's, or the copy of click that newer versions carry
_USAGE_ERROR: Any = typer.BadParameter.__mro__[2]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Honest, hardware-grounded tests of world-model papers.\n\n"
    "The order of a study: [b]record[/b] or [b]import[/b] recordings, [b]check[/b] them, write study.yaml, "
    "[b]freeze[/b] its bars before any latent exists, [b]probe[/b], [b]report[/b], let others [b]verify[/b]. "
    "[b]demo[/b] walks through all of it on the simulated arm.",
    epilog="Exit codes: 0 done, 1 a check or a verification failed, 2 bad input.",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print neither progress nor text.")]
StudyFolder = Annotated[
    Path, typer.Argument(metavar="STUDY", help="The study's folder, which holds study.yaml.")
]
RecordingFolder = Annotated[Path, typer.Argument(metavar="RECORDING", help="A recording's folder.")]


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A LeRobotDataset folder (v2.1 or v3.0).")],
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
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Note counts that disagree as faults instead of stopping.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Import recordings of another format, counting everything twice.

    Rows, decoded frames and metadata must agree; timestamps of the source are kept as they are beside the
    video's own. Stopped half way, the same command goes on where it was.
    """
    terminal = Terminal(json, quiet)
    from hardware.importers import import_recording
    from hardware.recording import Recording

    with terminal.progress() as progress:
        report = import_recording(
            source,
            to,
            unit=unit,
            calibrations=_calibrations(calibration or []),
            lenient=lenient,
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
    to: Annotated[Path, typer.Option("--to", help="The recording to make, e.g. recordings/walk.")],
    motion: Annotated[
        Literal["demos", "walk"], typer.Option("--motion", help="Pick and place, or the OU random walk.")
    ],
    episodes: Annotated[int, typer.Option("--episodes", min=1, help="How many episodes.")] = 36,
    robot: Annotated[Literal["sim"], typer.Option("--robot", help="The simulated SO-101.")] = "sim",
    seconds: Annotated[float | None, typer.Option("--seconds", help="Length of a walk episode.")] = None,
    views: Annotated[str, typer.Option("--views", help="Cameras, separated by commas.")] = "front,wrist",
    fps: Annotated[float, typer.Option("--fps", min=1, help="Frames a second of each camera.")] = 10,
    size: Annotated[int, typer.Option("--size", min=16, help="Width and height of a frame in pixels.")] = 96,
    seed: Annotated[int, typer.Option("--seed", help="Everything random comes from it.")] = 0,
    mjcf: Annotated[
        Path | None, typer.Option("--mjcf", help="Your own MuJoCo model with the same joint names.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Record episodes on the simulated arm, as the real arm does."""
    terminal = Terminal(json, quiet)
    from sim.record import record_simulated

    with terminal.progress() as progress:
        recording = record_simulated(
            to,
            motion=motion,
            episodes=episodes,
            seed=seed,
            views=_names(views),
            fps=fps,
            image_size=size,
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


@app.command()
def check(recording: RecordingFolder, json: Json = False, quiet: Quiet = False) -> None:
    """Check a recording: hashes, counts, clocks, repeated and black frames. Exit code 1 when one fails."""
    terminal = Terminal(json, quiet)
    from hardware.checks import check_recording
    from hardware.recording import Recording

    with terminal.progress() as progress:
        checks = check_recording(Recording.open(recording), progress=progress)
    styles = {"pass": "green", "warn": "yellow", "fail": "bold red"}
    for one in checks:
        terminal.say(
            f"  {one.name}  {one.message}"
            + (f"\n      {one.remedy}" if one.remedy and one.state != "pass" else ""),
            head=one.state,
            style=styles[one.state],
        )
    failed = [one.name for one in checks if one.state == "fail"]
    terminal.result(
        {"recording": str(recording), "checks": [asdict(one) for one in checks], "failed": failed}
    )
    raise typer.Exit(FAILED if failed else DONE)


@app.command()
def train(
    recording: RecordingFolder,
    to: Annotated[Path, typer.Option("--to", help="Folder of the trained encoder.")],
    kind: Annotated[str, typer.Option("--kind", help="cnn (SIGReg and alignment), or pixels (PCA).")] = "cnn",
    episodes: Annotated[
        str | None, typer.Option("--episodes", help="Episodes to train on, e.g. 0-23. Default: all.")
    ] = None,
    views: Annotated[
        str | None, typer.Option("--views", help="Views, separated by commas. Default: all.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A field of the recipe, e.g. --set steps=400 --set lam=0.05."
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train an encoder on a recording: seeded, resumable, weights as safetensors and a JSON about them."""
    terminal = Terminal(json, quiet)
    from encoders import parse_recipe
    from encoders import train as train_encoder
    from hardware.recording import Recording

    opened = Recording.open(recording)
    fields = {**_options(option or []), "kind": kind}
    fields["views"] = _names(views) if views else opened.info.view_names
    chosen = _episodes(episodes) if episodes else opened.episode_indices
    with terminal.progress() as progress:
        encoder = train_encoder(opened, chosen, parse_recipe(fields), to, progress=progress)
    terminal.say(
        f": {kind}, {encoder.width} dimensions, fingerprint {encoder.fingerprint[:16]}", head=str(to)
    )
    terminal.result({"encoder": str(to), "fingerprint": encoder.fingerprint, "describe": encoder.describe()})


@app.command()
def freeze(
    study: StudyFolder,
    supersede: Annotated[
        str | None,
        typer.Option(
            "--supersede", metavar="REASON", help="Replace an earlier freeze; the reason is kept for ever."
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Freeze a study's claims, bars, data and encoders, before any latent of an evaluation episode exists."""
    terminal = Terminal(json, quiet)
    from probe.run import freeze_study

    with terminal.progress() as progress:
        event = freeze_study(study, supersede=supersede, progress=progress)
    terminal.say(f" {study} at {event.time}", head="frozen", style="bold green")
    terminal.say(f"  study.yaml  {event.body['study_sha256']}\n  event       {event.hash}")
    for name, data in event.body["data"].items():
        if data["untestable"]:
            worst = ", ".join(f"{joint} (std {std:.4f})" for joint, std in data["untestable"].items())
            terminal.say(f"  not testable in {name}: {worst}")
    terminal.result({"event": event.event, "time": event.time, "hash": event.hash, "body": event.body})


@app.command()
def probe(
    study: StudyFolder,
    exploratory: Annotated[
        bool, typer.Option("--exploratory", help="Probe without a freeze; the card says so at its top.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train what the study says, extract latents, probe them against the joints, judge the bars.

    Refuses when nothing is frozen, or when anything bound has changed. Stopped half way, the same command
    goes on.
    """
    terminal = Terminal(json, quiet)
    from probe.run import probe_study

    with terminal.progress() as progress:
        results = probe_study(study, exploratory=exploratory, progress=progress)
    _show_verdict(terminal, study)
    terminal.result(results.model_dump(by_alias=True))


@app.command()
def report(study: StudyFolder, json: Json = False, quiet: Quiet = False) -> None:
    """Write the verdict card (card.md, card.html, figures) from results.json and the ledger, and show it."""
    terminal = Terminal(json, quiet)
    from probe.run import report_study

    written = report_study(study)
    _show_card(terminal, study)
    terminal.say("\n".join(f"wrote {path}" for path in written))
    terminal.result({"files": [str(path) for path in written]})


@app.command()
def verify(
    study: StudyFolder,
    ledger_only: Annotated[
        bool,
        typer.Option("--ledger-only", help="Exit with 0 although bytes are not here (recordings, weights)."),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Recompute a study's chain of hashes on any machine and name the first thing that does not match."""
    terminal = Terminal(json, quiet)
    from probe.run import verify_study_folder

    outcome = verify_study_folder(study, ledger_only=ledger_only)
    styles = {"match": "green", "differs": "bold red", "not checked": "yellow"}
    for line in outcome.lines:
        terminal.say(
            f"  {line.what}"
            + (f"  (expected {line.expected}, found {line.found})" if line.state == "differs" else ""),
            head=line.state,
            style=styles[line.state],
        )
    terminal.say(outcome.summary)
    terminal.result(
        {"ok": outcome.ok, "summary": outcome.summary, "lines": [asdict(line) for line in outcome.lines]}
    )
    raise typer.Exit(DONE if outcome.ok else FAILED)


@app.command()
def demo(
    to: Annotated[Path, typer.Option("--to", help="Folder for the recordings and the study.")] = Path("demo"),
    mjcf: Annotated[
        Path | None, typer.Option("--mjcf", help="Your own MuJoCo model with the same joint names.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """The whole job on the simulated arm: record, freeze, train, probe, judge, print the card."""
    terminal = Terminal(json, quiet)
    from probe.demo import run_demo

    with terminal.progress() as progress:
        study, results = run_demo(to, mjcf=mjcf, progress=progress)
    _show_card(terminal, study)
    terminal.say(f"the card: {study / 'card.html'}   the numbers: {study / 'results.json'}")
    terminal.result(results.model_dump(by_alias=True))


def _show_verdict(terminal: Terminal, study: Path) -> None:
    if not terminal.talks:
        return
    from reports import load_card

    card = load_card(study)
    terminal.say("".join(f", {part}" for part in card.beside), head=card.banner or card.verdict)
    for bar in card.bars:
        terminal.say(f"  {bar.id}  {bar.state:10}  {bar.text}   {bar.ours} {bar.interval}".rstrip())
    terminal.say(f"the card: {study / 'card.html'}   here: jointprobe report {study}")


def _show_card(terminal: Terminal, study: Path) -> None:
    if terminal.talks:
        from reports import load_card, print_card

        print_card(load_card(study), terminal.out)


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


def _names(text: str) -> tuple[str, ...]:
    """The names of a list that is separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _options(options: list[str]) -> dict[str, Any]:
    import yaml

    from hardware.errors import InputError

    fields: dict[str, Any] = {}
    for text in options:
        key, mark, value = text.partition("=")
        if not mark:
            raise InputError("--set", f"{text!r} is not KEY=VALUE", "for example --set steps=400")
        try:
            fields[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise InputError(f"--set {key}", f"{value!r} is not a value: {error}".split("\n")[0]) from None
    return fields


def _episodes(text: str) -> list[int]:
    from bars import parse_episodes
    from hardware.errors import InputError

    try:
        return list(parse_episodes(text))
    except ValueError as error:
        raise InputError("--episodes", str(error), "write 0-23, or 0-3,7") from None


def main(arguments: list[str] | None = None) -> None:
    """Entry point: errors that a person can act on become one line and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    terminal = Terminal(as_json="--json" in words, quiet="--quiet" in words or "-q" in words)
    try:
        code = app(words, standalone_mode=False) or DONE
        if code == INTERRUPTED:  # newer typer turns Ctrl-C into this code, older ones into Abort
            raise KeyboardInterrupt
        sys.exit(code)
    except EXPECTED as error:
        sys.exit(terminal.fail(error))
    except _USAGE_ERROR as error:  # a missing or unknown option, a value of the wrong type
        sys.exit(terminal.fail_usage(error))
    except OSError as error:
        sys.exit(terminal.fail(disk_error(error)))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(terminal.fail(KeyboardInterrupt()))


if __name__ == "__main__":
    main()
