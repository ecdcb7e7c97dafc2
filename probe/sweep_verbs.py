"""`jointprobe sweep`: the paper's experiments in worlds whose latents are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from probe.terminal import Terminal
from probe.verbs import Json, Quiet, app

if TYPE_CHECKING:
    from probe.experiments.experiment import Experiment, Setting
    from probe.experiments.plan import Planned

SETTINGS = ("published", "theorem")
ALL = "all"


@app.command()
def sweep(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT",
            help="two-d, grid, gennorm, scaling, reacher, all of them (all), or a YAML file; --plan says "
            "what varies in it.",
        ),
    ],
    to: Annotated[Path, typer.Option("--to", help="Folder of results, tables and figures.")],
    as_: Annotated[
        str,
        typer.Option(
            "--as",
            help="published (as the paper's code does it), theorem (as its theorem says), or both.",
        ),
    ] = "published",
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", help="How many seeds (5), or which (0,3,7). Default: as many as the paper."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Steps of every training. Default: 20,000.")
    ] = None,
    dims: Annotated[
        str | None, typer.Option("--dims", metavar="N,N", help="Numbers of latents, where they vary.")
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="AXIS=V1,V2",
            help="Other values of an axis: --vary lam=1e-2,1e-3 --vary world.rho=0.9.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Another value for every run: --set batch_size=128, --set network.hidden=64,64, and of "
            "reacher --set pairs=2000 --set epochs=5.",
        ),
    ] = None,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls/--no-controls", help="With the runs that show what it tests: lambda 0, untrained ..."
        ),
    ] = True,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="Processes. Default: one a core, one alone beside a GPU."),
    ] = None,
    at_once: Annotated[
        int | None, typer.Option("--at-once", min=1, help="Most runs in one batch. Default: 8.")
    ] = None,
    plan_only: Annotated[
        bool,
        typer.Option("--plan", help="Say what varies and what would be trained, and train nothing."),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train and measure every run of an experiment, then make its tables and figures.

    Each result is a file by its run's hash (TO/runs): stopped or killed, the same command goes on where it
    was and repeats nothing, and experiments share what they have in common. TO/EXPERIMENT-published and
    TO/EXPERIMENT-theorem then hold runs.csv, runs.parquet, summary.csv, results.json, table.md and the
    figures, the paper's numbers beside ours.

    A small one: [bold]jointprobe sweep scaling --dims 2,4,8 --seeds 2 --steps 2000 --to sweeps[/bold]
    """
    terminal = Terminal(json, quiet)
    from probe.experiments.experiment import experiment_names, load_experiment
    from probe.experiments.plan import fitting, plan

    axes, change = _axes(vary or [], dims), _changes(option or [])
    repeated = _seeds(seeds)
    if experiment == ALL:
        asked = fitting([load_experiment(name) for name in experiment_names()], axes, change)
    else:
        asked = [(load_experiment(experiment), axes, change)]
    chosen: list[tuple[Experiment, Setting, list[Planned]]] = []
    for loaded, its_axes, its_change in asked:
        varied = loaded.varied(its_axes)
        for setting in _settings(as_):
            planned = plan(varied, setting, seeds=repeated, steps=steps, change=its_change, controls=controls)
            chosen.append((varied, setting, planned))
    if controls:
        _say_lost_controls(terminal, chosen)
    jobs = {
        kind: [one.job for loaded, _, planned in chosen if loaded.kind == kind for one in planned]
        for kind in dict.fromkeys(loaded.kind for loaded, _, _ in chosen)
    }
    if plan_only:
        _say_plan(terminal, chosen, to)
        return
    from encoders.many_runs import AT_ONCE
    from probe.experiments.jobs import groups
    from probe.experiments.pair_checks import pair_checks
    from probe.experiments.sweep import run_sweep
    from probe.experiments.tables import rows_of, with_choice, write_tables
    from probe.experiments.training import perform
    from reports.sweep_figures import draw_sweep

    new = 0
    with terminal.progress() as progress:
        if "worlds" in jobs:
            together = groups(jobs["worlds"], at_once or AT_ONCE)
            new += run_sweep(together, perform, to, workers=workers, progress=progress)
        if "reacher" in jobs:
            from probe.experiments.reacher_sets import make_sets

            source = str(change.get("source", "random"))
            on_images = make_sets(jobs["reacher"], to, source=source, workers=workers, progress=progress)
            alone = list({job.key: [job] for job in jobs["reacher"]}.values())
            new += run_sweep(alone, on_images, to, workers=workers, progress=progress)
    made: list[dict[str, Any]] = []
    for loaded, setting, planned in chosen:
        folder = to / f"{loaded.name}-{setting}"
        rows = rows_of(planned, to)
        checks = pair_checks(planned) if loaded.kind == "worlds" else []
        cells, results = write_tables(loaded, setting, rows, folder, checks)
        shown = with_choice(loaded, setting, cells)
        pictures = draw_sweep(loaded.figure, shown, f"{loaded.title} (as: {setting})", folder)
        lost = sum(cell.failed for cell in cells)
        tail = f", {lost} diverged" if lost else ""
        terminal.say(
            f": {len(rows)} runs of {len(cells)} cells{tail} - table.md, runs.csv, "
            f"{', '.join(path.name for path in pictures)}",
            head=str(folder),
        )
        made.append(
            {
                "experiment": loaded.name,
                "as": setting,
                "folder": str(folder),
                "runs": len(rows),
                "diverged": lost,
                "results": results,
            }
        )
    every = {job.key for some in jobs.values() for job in some}
    terminal.say(f"{new} new results of {len(every)} in {to / 'runs'}")
    terminal.result({"new": new, "experiments": made})


def _say_lost_controls(
    terminal: Terminal, chosen: Sequence[tuple[Experiment, Setting, list[Planned]]]
) -> None:
    for loaded, setting, planned in chosen:
        there = {one.arm for one in planned}
        for control in loaded.controls:
            if control not in there:
                terminal.say(
                    f" (as: {setting}): no run of the control {control!r} at these values", head=loaded.name
                )


def _say_plan(
    terminal: Terminal, chosen: Sequence[tuple[Experiment, Setting, list[Planned]]], to: Path
) -> None:
    from probe.experiments.experiment import MAIN
    from probe.experiments.sweep import read_result

    seen: set[str] = set()
    made: list[dict[str, Any]] = []
    for loaded, setting, planned in chosen:
        jobs = {one.job.key: one.job for one in planned}
        lacking = [job for key, job in jobs.items() if key not in seen and read_result(to, job) is None]
        seen |= jobs.keys()
        steps = sum(job.run_steps for job in lacking)
        terminal.say(
            f" (as: {setting}): {len(planned)} runs, {len(lacking)} to do, {steps:,} run-steps",
            head=loaded.name,
        )
        arms: dict[str, dict[str, list[Any]]] = {}
        for one in planned:
            axes = arms.setdefault(one.arm, {})
            for axis, value in one.at.items():
                if value not in axes.setdefault(axis, []):
                    axes[axis].append(value)
        for arm, axes in arms.items():
            varied = "; ".join(f"{axis}={','.join(map(_short, values))}" for axis, values in axes.items())
            terminal.say(f"  {'varies' if arm == MAIN else f'control {arm}'}: {varied or 'nothing'}")
        made.append(
            {
                "experiment": loaded.name,
                "as": setting,
                "runs": len(planned),
                "to_do": len(lacking),
                "seeds": sorted({one.seed for one in planned}),
                "arms": arms,
            }
        )
    terminal.result({"plan": made})


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _settings(text: str) -> Sequence[Setting]:
    from hardware.errors import InputError

    if text not in (*SETTINGS, "both"):
        raise InputError("--as", f"is {text!r}", "write published, theorem or both")
    return SETTINGS if text == "both" else (text,)  # type: ignore[return-value]


def _seeds(text: str | None) -> Sequence[int] | None:
    from hardware.errors import InputError
    from probe.experiments.experiment import MOST_SEEDS

    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.removesuffix(",").split(",")]
    except ValueError:
        numbers = []
    many = "," not in text
    if not numbers or min(numbers) < 0 or (many and numbers[0] < 1):
        raise InputError("--seeds", f"is {text!r}", "write how many (5), or which (0,3,7, or 3, for one)")
    if many and numbers[0] > MOST_SEEDS:
        raise InputError("--seeds", f"asks for {text} seeds, more than {MOST_SEEDS:,}", "name one as 3,")
    if max(numbers) >= 1 << 31:
        raise InputError("--seeds", f"names {max(numbers)}", "name seeds below 2,147,483,648")
    if len(set(numbers)) < len(numbers):
        raise InputError("--seeds", f"names a seed twice: {text}", "name each once")
    return range(numbers[0]) if many else numbers


def _axes(vary: Sequence[str], dims: str | None) -> dict[str, list[Any]]:
    """`lam=1e-2,1e-3` as {lam: [0.01, 0.001]}: values as YAML reads them."""
    from hardware.errors import InputError

    axes: dict[str, list[Any]] = {} if dims is None else {"world.dim": _values("--dims", dims)}
    for text in vary:
        axis, equals, values = text.partition("=")
        if not equals or not axis:
            raise InputError("--vary", f"is {text!r}", "write AXIS=VALUE,VALUE")
        if axis in axes:
            raise InputError("--vary", f"gives {axis} twice", "give each axis once")
        axes[axis] = _values(f"--vary {axis}", values)
    return axes


def _changes(options: Sequence[str]) -> dict[str, Any]:
    """`batch_size=128` as {batch_size: 128}; values with commas are a list, `8,` is one of one value."""
    from hardware.errors import InputError

    changes: dict[str, Any] = {}
    for text in options:
        path, equals, value = text.partition("=")
        if not equals or not path or path in changes:
            raise InputError("--set", f"is {text!r}", "write KEY=VALUE, each key once")
        values = _values(f"--set {path}", value.removesuffix(","))
        changes[path] = values if "," in value else values[0]
    return changes


def _values(option: str, text: str) -> list[Any]:
    from hardware.errors import InputError

    values: list[Any] = []
    for part in text.split(","):
        try:
            values.append(int(part))
        except ValueError:
            try:
                values.append(float(part))
            except ValueError:
                values.append(part.strip())
    if "" in values:
        raise InputError(option, f"has an empty value: {text!r}", "separate values by single commas")
    return values
