"""The verbs of encoders and studies: train, freeze, probe, report, verify, and the demo of all of it."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from probe.terminal import DONE, FAILED, Terminal
from probe.verbs import Json, Quiet, RecordingFolder, StudyFolder, app, episodes_of, names_of


@app.command()
def train(
    recording: RecordingFolder,
    to: Annotated[Path, typer.Option("--to", help="Folder of the trained encoder.")],
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            help="cnn (SIGReg and alignment), lewm (a world model, as published), lewm-small (for laptops, "
            "Jetson), or pixels (PCA).",
        ),
    ] = "cnn",
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
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            "--tensorboard",
            metavar="DIR",
            help="Write the log for TensorBoard as well, which must be installed.",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train an encoder on a recording: seeded, resumable, weights as safetensors and a JSON about them.

    The folder also gets training.jsonl and training.png: loss terms, spread of the latents, learning rate.
    Stopped half way, the same command goes on from the last checkpoint.
    """
    terminal = Terminal(json, quiet)
    from encoders import parse_recipe
    from encoders import train as train_encoder
    from encoders.training_state import logged_warnings
    from hardware.recording import Recording
    from reports.training_figure import draw_training

    opened = Recording.open(recording)
    fields = {**_options(option or []), "kind": kind}
    fields["views"] = names_of(views) if views else opened.info.view_names
    chosen = episodes_of(episodes) if episodes else opened.episode_indices
    with _telling(terminal) as progress:
        encoder = train_encoder(
            opened, chosen, parse_recipe(fields), to, progress=progress, tensorboard=tensorboard
        )
    terminal.say(
        f": {kind}, {encoder.width} dimensions, fingerprint {encoder.fingerprint[:16]}", head=str(to)
    )
    figure = draw_training(to)
    if figure is not None:
        terminal.say(f"the training: {figure}")
    terminal.result(
        {
            "encoder": str(to),
            "fingerprint": encoder.fingerprint,
            "warnings": logged_warnings(to),
            "figure": None if figure is None else str(figure),
            "describe": encoder.describe(),
        }
    )


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
    """Freeze a study's claims, bars, data and encoders, before any latent of an evaluation episode exists.

    Prints what is bound, and what can come of every bar.
    """
    terminal = Terminal(json, quiet)
    from bars import Study
    from probe.freeze_screen import bound_table, read_bound
    from probe.run import freeze_study

    with terminal.progress() as progress:
        event = freeze_study(study, supersede=supersede, progress=progress)
    terminal.say(f" {study} at {event.time}", head="frozen", style="bold green")
    loaded = Study.load(study)
    bound = read_bound(loaded, event)
    if terminal.talks:
        terminal.out.print(bound_table(loaded, bound))
    terminal.say(f"study.yaml  {event.body['study_sha256']}\nevent       {event.hash}")
    terminal.say(f"next: jointprobe probe {shlex.quote(str(study))}")
    terminal.result(
        {
            "event": event.event,
            "time": event.time,
            "hash": event.hash,
            "body": event.body,
            "bound": bound.to_json(),
        }
    )


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

    with _telling(terminal) as progress:
        results = probe_study(study, exploratory=exploratory, progress=progress)
    _show_verdict(terminal, study)
    terminal.result(results.model_dump(by_alias=True))


@app.command()
def report(study: StudyFolder, json: Json = False, quiet: Quiet = False) -> None:
    """Write the verdict card (card.md, card.html, figures) from results.json and the ledger, and show it."""
    terminal = Terminal(json, quiet)
    from probe.run import report_study

    written = report_study(study)
    _show_card(terminal, study, written)
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

    with _telling(terminal) as progress:
        study, results = run_demo(to, mjcf=mjcf, progress=progress)
    _show_card(terminal, study, [study / "card.html", study / "results.json"])
    terminal.result(results.model_dump(by_alias=True))


@contextmanager
def _telling(terminal: Terminal) -> Iterator[Any]:
    """The terminal's progress, beside which the collapse of a training is told as a line of its own."""
    from encoders.collapse import CollapseWarning

    with terminal.progress() as progress, warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, CollapseWarning):
                terminal.note(f"jointprobe: {message}", style="yellow")
            else:
                shown(message, category, *where, **more)

        warnings.showwarning = show
        yield progress


def _show_verdict(terminal: Terminal, study: Path) -> None:
    if not terminal.talks:
        return
    from reports import load_card, print_verdict

    card = load_card(study)
    wide = max(len(bar.standing) for bar in card.bars) if card.bars else 0
    for bar in card.bars:
        terminal.say(f"  {bar.id}  {bar.standing:{wide}}  {bar.text}   {bar.ours} {bar.interval}".rstrip())
    print_verdict(card, terminal.out)
    terminal.say(f"the card: {study / 'card.html'}   here: jointprobe report {shlex.quote(str(study))}")


def _show_card(terminal: Terminal, study: Path, written: Sequence[Path]) -> None:
    """The card, the files it was written to, and the verdict once more, which has scrolled away by then."""
    if terminal.talks:
        from reports import load_card, print_card, print_verdict

        card = load_card(study)
        print_card(card, terminal.out, str(study))
        terminal.say("\n".join(f"wrote {path}" for path in written))
        print_verdict(card, terminal.out)


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
