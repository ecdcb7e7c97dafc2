"""`jointprobe reacher`: pair sets of the paper's own world, DM Control's Reacher."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from probe.terminal import Terminal
from probe.verbs import Json, Quiet, app, names_of

if TYPE_CHECKING:
    from sim.reacher_draws import Draw
    from sim.reacher_pairs import PairSet
    from sim.reacher_trajectories import Diagnosis

reacher = typer.Typer(
    no_args_is_help=True,
    help="Pairs of images of DM Control's Reacher, as the identifiability paper trains on them.",
)
app.add_typer(reacher, name="reacher")

To = Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder of the set.")]
Pairs = Annotated[int, typer.Option("--pairs", min=1, help="Pairs of each value.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of all that is drawn.")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes that render. Default: one a core.")
]


@reacher.command()
def ou(
    rho: Annotated[
        str, typer.Option("--rho", metavar="R[,R..]", help="Correlations of a state with the next.")
    ],
    to: To,
    pairs: Pairs = 100_000,
    seed: Seed = 9999,
    workers: Workers = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Pairs of the theorem's transition: z' = rho z + sqrt(1 - rho^2) eta, both joint angles Gaussian.

    All rho share their first members, whose images are rendered and stored once. The images are dm_control's
    to the byte. Stopped or killed, the same command goes on where it was.

    As published: [bold]jointprobe reacher ou --rho 0.3,0.5,0.7,0.8,0.9,0.95,0.99 --to reacher-ou[/bold]
    """
    from sim.reacher_draws import draw_ou

    _make(Terminal(json, quiet), draw_ou(_numbers("--rho", rho), pairs, seed), to, workers)


@reacher.command()
def traj(
    delta: Annotated[
        str,
        typer.Option("--delta", metavar="D[,D..]", help="Rows between both members of a pair."),
    ],
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="FILE_OR_POLICY",
            help="LeWM's reacher.h5; or episodes of our own: random (uniform actions), goal (from target to "
            "target).",
        ),
    ],
    to: To,
    pairs: Pairs = 100_000,
    seed: Seed = 9999,
    workers: Workers = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Pairs of rows of episodes, ten an episode; images are rendered again with the target where all have it.

    Says what the episodes look like: the autocorrelations of their joints beside those that the paper prints,
    which tell a random policy from one with a goal.

    As published: [bold]jointprobe reacher traj --delta 1,2,4,8,16,32,64 --source reacher.h5 --to
    reacher-traj[/bold]
    """
    from sim.reacher_draws import PAIRS_PER_EPISODE, draw_trajectory
    from sim.reacher_trajectories import diagnose, episodes_of

    terminal = Terminal(json, quiet)
    deltas = [_whole("--delta", value) for value in _numbers("--delta", delta)]
    with terminal.progress() as progress:
        episodes = episodes_of(source, -(-pairs // PAIRS_PER_EPISODE), seed, progress=progress)
    draw = draw_trajectory(episodes, deltas, pairs, seed)
    diagnosis = diagnose(episodes)
    _say_diagnosis(terminal, episodes.name, len(episodes), diagnosis)
    _make(terminal, draw, to, workers, diagnosis)


@reacher.command("eval")
def evaluation(
    to: To,
    images: Annotated[int, typer.Option("--images", min=1, help="How many.")] = 10_000,
    seed: Seed = 9999,
    workers: Workers = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Single images of independent Gaussian states, none of which an ou set of the same seed holds."""
    from sim.reacher_draws import draw_evaluation

    _make(Terminal(json, quiet), draw_evaluation(images, seed), to, workers)


@reacher.command()
def show(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a set.")],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE.png", help="Default: DIR with .png added.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Hash its images as well.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw some pairs, the distribution of both joints, and how pairs correlate."""
    from hardware.disk import disk_errors, write_atomically
    from probe.reacher_picture import draw_pair_set
    from sim.reacher_pairs import PairSet

    terminal = Terminal(json, quiet)
    pairs = PairSet.open(folder, verify=verify)
    path = to or folder.with_name(folder.resolve().name + ".png")
    picture = draw_pair_set(pairs)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, picture)
    _say_set(terminal, pairs)
    terminal.say(f": {path.stat().st_size:,} bytes", head=str(path))
    terminal.result({**_set_json(pairs), "picture": str(path)})


# -- what they share ---------------------------------------------------------------------------------------


def _make(
    terminal: Terminal, draw: Draw, to: Path, workers: int | None, diagnosis: Diagnosis | None = None
) -> None:
    from sim.reacher_pairs import write_pair_set

    with terminal.progress() as progress:
        pairs = write_pair_set(draw, to, workers=workers, progress=progress)
    _say_set(terminal, pairs)
    result = _set_json(pairs)
    if diagnosis is not None:
        result["episodes"] = {
            "autocorrelation": {str(stride): two for stride, two in diagnosis.autocorrelation.items()},
            "mean": diagnosis.mean,
            "std": diagnosis.std,
            "action_lag1": diagnosis.action_lag1,
            "in_target": diagnosis.in_target,
        }
    terminal.result(result)


def _say_set(terminal: Terminal, pairs: PairSet) -> None:
    from probe.reacher_picture import pair_correlations

    info = pairs.info
    what = "images" if pairs.condition == "eval" else "pairs each"
    terminal.say(
        f": {info.condition}, {info.count:,} {what}, {len(pairs):,} different images", head=str(pairs.folder)
    )
    name = "rho" if pairs.condition == "ou" else "delta"
    for value, (shoulder, wrist) in pair_correlations(pairs).items():
        terminal.say(f"  {name} {value:<5g} correlation of pairs: shoulder {shoulder:.3f}, wrist {wrist:.3f}")


def _set_json(pairs: PairSet) -> dict[str, Any]:
    from probe.reacher_picture import pair_correlations

    return {
        "folder": str(pairs.folder),
        **pairs.info.model_dump(by_alias=True, mode="json"),
        "correlations": {f"{value:g}": two for value, two in pair_correlations(pairs).items()},
    }


def _say_diagnosis(terminal: Terminal, name: str, count: int, found: Diagnosis) -> None:
    """Autocorrelations by stride beside the published ones, then what else tells policies apart."""
    from sim.reacher_trajectories import PUBLISHED_AUTOCORRELATION

    terminal.say(f": {count:,} episodes; autocorrelation of the joints, the paper's in brackets", head=name)
    for stride, (shoulder, wrist) in found.autocorrelation.items():
        theirs = "  ({:.3f}, {:.3f})".format(*PUBLISHED_AUTOCORRELATION[stride])
        terminal.say(f"  delta {stride:<4} shoulder {shoulder:.3f}  wrist {wrist:.3f}{theirs}")
    off = max(
        abs(ours - its)
        for stride, two in found.autocorrelation.items()
        for ours, its in zip(two, PUBLISHED_AUTOCORRELATION[stride])
    )
    terminal.say(f"  largest difference from the paper's: {off:.3f}")
    for joint, mean, std in zip(("shoulder", "wrist"), found.mean, found.std):
        terminal.say(f"  {joint}: mean {mean:.2f}, sd {std:.2f} rad")
    if found.action_lag1 is not None:
        lags = ", ".join(f"{one:.3f}" for one in found.action_lag1)
        terminal.say(f"  correlation of an action with the one before: {lags} (0: independent)")
    if found.in_target is not None:
        terminal.say(f"  rows in the target: {found.in_target:.1%}")


def _numbers(option: str, text: str) -> list[float]:
    from hardware.errors import InputError

    try:
        return [float(name) for name in names_of(text)]
    except ValueError:
        raise InputError(option, f"is {text!r}", "write numbers separated by commas") from None


def _whole(option: str, value: float) -> int:
    from hardware.errors import InputError

    if value != int(value):
        raise InputError(option, f"{value:g} is no whole number of rows")
    return int(value)
