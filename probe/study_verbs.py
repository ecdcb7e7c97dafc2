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
    choose: Annotated[
        str | None,
        typer.Option(
            "--choose",
            metavar="KEY=V1,V2,...",
            help="Try these values on three quarters of the episodes, keep the one read best on the others "
            "(mean R2 of their joints), then train with it on all: --choose lam=0.03,0.1,0.3.",
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
    With --choose, TO/choice holds what was tried. Stopped half way, the same command goes on from the last
    checkpoint.
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
    choice = None if choose is None else _chosen(terminal, opened, chosen, fields, choose, to)
    if choice is not None:
        fields[choice["setting"]] = choice["chosen"]
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
            **({} if choice is None else {"choice": choice}),
        }
    )


def _chosen(
    terminal: Terminal, recording: Any, episodes: Sequence[int], recipe: dict[str, Any], option: str, to: Path
) -> dict[str, Any]:
    """Try the values of `--choose` and show them; returns the choice as choice.json holds it."""
    from rich.table import Table

    from hardware.errors import InputError
    from probe.choice import choose_setting
    from reports.choice_figure import draw_choice

    setting, mark, listed = option.partition("=")
    if not mark:
        raise InputError("--choose", f"{option!r} is not KEY=V1,V2,...", "for example --choose lam=0.03,0.1")
    if setting in recipe:
        raise InputError("--choose", f"{setting} is set already", f"leave out --set {setting}=...")
    values = [_options([f"{setting}={value}"])[setting] for value in listed.split(",")]
    with _telling(terminal) as progress:
        made = choose_setting(recording, episodes, recipe, setting, values, to / "choice", progress)
    choice = made.to_json()
    figure = draw_choice(choice, to / "choice")
    if terminal.talks:
        table = Table(setting, "mean R2", "interval", "anisotropy", "", box=None)
        for one in made.candidates:
            r2, low, high = ("" if x is None else f"{x:.3f}" for x in (one.r2.value, one.r2.low, one.r2.high))
            spread = "" if one.anisotropy.value is None else f"{one.anisotropy.value:.3f}"
            notes = [*(["chosen"] if one is made.best else []), *(["collapsed"] if one.warnings else [])]
            table.add_row(str(one.value), r2, f"[{low}, {high}]", spread, ", ".join(notes))
        terminal.out.print(table)
        terminal.say(
            f"of {len(made.held_out)} held-out training episodes; trained on {len(made.fitted)}: {figure}"
        )
        if made.at_the_edge:
            terminal.say(
                f"{made.best.value} is at the edge of the values tried: a better one may lie beyond it"
            )
    return choice


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
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            help="Folder for the recordings and the study.",
            show_default="the study's name",
        ),
    ] = None,
    study: Annotated[
        str,
        typer.Option(
            "--study",
            help="demo (a small network, minutes) or world-models (LeWM and the theorem's own loss on both "
            "motions, three seeds each, a frozen network; one to two hours).",
        ),
    ] = "demo",
    mjcf: Annotated[
        Path | None, typer.Option("--mjcf", help="Your own MuJoCo model with the same joint names.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """The whole job on the simulated arm: record, freeze, train, probe, judge, print the card."""
    terminal = Terminal(json, quiet)
    from hardware.errors import InputError
    from probe.demo import STUDIES, run_demo

    if study not in STUDIES:
        raise InputError("--study", f"there is no study {study!r} to run", f"one of {', '.join(STUDIES)}")
    with _telling(terminal) as progress:
        made, results = run_demo(to or Path(study), mjcf=mjcf, settings=STUDIES[study], progress=progress)
    _show_card(terminal, made, [made / "card.html", made / "results.json"])
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
        if key in fields:
            raise InputError(f"--set {key}", "is given twice", "leave out one of the two")
        try:
            fields[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise InputError(f"--set {key}", f"{value!r} is not a value: {error}".split("\n")[0]) from None
    return fields
