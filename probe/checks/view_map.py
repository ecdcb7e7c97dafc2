"""Which view shows which joints: a matrix of held-out R2 that exposes swapped and misnamed cameras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from hardware.checks import Check, not_testable
from hardware.checks.check import listed
from probe.checks.pixels import HeldOut, PixelRows, centred, held_out
from probe.clusters import EpisodeClusters
from probe.moments import FloatArray
from probe.statistics import ResidualSums, r2

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_EPISODES = 4  # with fewer, an interval over episodes means nothing
RESAMPLES, LEVEL = 2000, 0.95
STRONGEST = 3  # groups of each view that are told in words
ALIKE = 0.05  # correlation by which another view's picture must be nearer before views count as swapped


@dataclass(frozen=True, eq=False)
class ViewMap:
    """Held-out R2 from each of V views (16 x 16 pixels) to each of G groups of joints, within episodes.

    Arms that work together move together, so a camera on one arm also predicts the other. `own` is therefore
    what decides: R2 of the part of a group's joints that the other groups' joints do not explain linearly.

    Attributes
    ----------
    views, groups : names; `members` are the joints of each group.
    r2, own : [V, G]; uniform mean over the group's joints that move, a joint below 0 counting as 0 (a joint
        that cannot be read is not read; how badly is no matter). NaN where none moves.
    low, high : [V, G], percentile interval of `r2` over episodes.
    own_draws : [V, B, G], `own` in each resample of episodes.
    episodes : [V], episodes behind each row.
    """

    views: tuple[str, ...]
    groups: tuple[str, ...]
    members: tuple[tuple[str, ...], ...]
    r2: FloatArray
    low: FloatArray
    high: FloatArray
    own: FloatArray
    own_draws: FloatArray
    episodes: NDArray[np.int64]

    def best(self, view: str) -> str:
        """The group that a view shows most of by itself; "" where nothing moves."""
        row = self.own[self.views.index(view)]
        return "" if np.isnan(row).all() else self.groups[int(np.nanargmax(row))]

    def strongest(self, view: str) -> str:
        """The groups that a view shows most of, in words, with R2 and own R2."""
        v = self.views.index(view)
        rising = np.argsort(np.nan_to_num(self.own[v], nan=-1.0), kind="stable")
        shown = [g for g in rising[::-1] if not np.isnan(self.own[v, g])][:STRONGEST]
        parts = [f"{self.groups[g]} {self.r2[v, g]:.2f} ({self.own[v, g]:.2f})" for g in shown]
        return f"{view} sees {', '.join(parts)}" if parts else f"{view} sees no joint that moves"

    def beats(self, view: str, group: str, other: str) -> bool:
        """Whether a view is shown to be on `group` rather than on `other`: the interval of half the one less
        the other excludes 0.

        Half, because a camera on a wrist sees its gripper and, by what is around it, where the arm points:
        that it sees one of them a little better is no mistake.
        """
        draws = self.own_draws[self.views.index(view)]
        apart = 0.5 * draws[:, self.groups.index(group)] - draws[:, self.groups.index(other)]
        return bool(np.nanquantile(apart, (1 - LEVEL) / 2) > 0) if np.isfinite(apart).any() else False

    def evidence(self) -> dict[str, Any]:
        """The numbers, for a Check."""

        def table(values: FloatArray) -> dict[str, dict[str, float | None]]:
            return {
                view: {
                    group: None if np.isnan(values[v, g]) else round(float(values[v, g]), 4)
                    for g, group in enumerate(self.groups)
                }
                for v, view in enumerate(self.views)
            }

        return {
            "r2": table(self.r2),
            "r2_low": table(self.low),
            "r2_high": table(self.high),
            "own_r2": table(self.own),
            "episodes_compared": dict(zip(self.views, self.episodes.tolist())),
        }


def joint_groups(joints: Sequence[str]) -> dict[str, list[int]]:
    """Columns of joints by limb: `arm1_`, `arm2_` or `left_`, `right_` where each holds the same joints.

    Where names do not say so, each joint is a group of its own.
    """
    for mark in ("_", ".", "-", "/"):
        groups: dict[str, list[int]] = {}
        parts = [joint.split(mark, 1) for joint in joints]
        for column, part in enumerate(parts):
            groups.setdefault(part[0], []).append(column)
        rests = {tuple(sorted(parts[column][-1] for column in columns)) for columns in groups.values()}
        if len(groups) > 1 and len(rests) == 1 and len(next(iter(rests))) > 1:
            return groups
    return {joint: [column] for column, joint in enumerate(joints)}


def measure_view_map(rows: Mapping[str, PixelRows]) -> ViewMap | None:
    """The map of all views; None where no view has two episodes with a joint that moves."""
    usable = [one for one in rows.values() if len(one.clusters) > 1 and one.moving.any()]
    if not usable:
        return None
    joints = usable[0].joints
    groups = joint_groups(joints)
    measured = [_measure(one, groups) for one in usable]
    full, own = (np.array([pair[which] for pair in measured]) for which in (0, 1))  # [V, 1 + B, G]
    tails = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    low, high = np.quantile(full[:, 1:], tails, axis=1)
    return ViewMap(
        tuple(one.view for one in usable),
        tuple(groups),
        tuple(tuple(joints[column] for column in columns) for columns in groups.values()),
        full[:, 0],
        low,
        high,
        own[:, 0],
        own[:, 1:],
        np.array([len(one.clusters) for one in usable]),
    )


def _measure(rows: PixelRows, groups: Mapping[str, list[int]]) -> tuple[FloatArray, FloatArray]:
    """R2 and own R2 of one view, [1 + B, G] each: all episodes first, then resamples of them."""
    clusters = rows.clusters
    x = centred(rows.features, clusters)
    y = centred(rows.position, clusters)
    rest = y.copy()
    for columns in groups.values():
        others = [c for c in range(y.shape[1]) if c not in columns and rows.moving[c]]
        if others:
            explained = y[:, others] @ np.linalg.lstsq(y[:, others], y[:, columns], rcond=None)[0]
            rest[:, columns] -= explained
    rng = np.random.default_rng(0)
    e = len(clusters)
    weights = np.vstack([np.ones(e), rng.multinomial(e, np.full(e, 1 / e), size=RESAMPLES)])
    of_rest = held_out(x, rest, clusters, rows.moving)
    return (
        _group_scores(y, rows.held_out, clusters, weights, rows.moving, groups),
        _group_scores(rest, of_rest, clusters, weights, rows.moving, groups),
    )


def _group_scores(
    y: FloatArray,
    held: HeldOut,
    clusters: EpisodeClusters,
    weights: FloatArray,
    moving: NDArray[np.bool_],
    groups: Mapping[str, list[int]],
) -> FloatArray:
    sums = ResidualSums.of(y, held.prediction, clusters)
    joints = np.nan_to_num(r2(*sums.squares(weights)), nan=0.0).clip(min=0.0)
    out = np.full((len(weights), len(groups)), np.nan)
    for g, columns in enumerate(groups.values()):
        moved = [column for column in columns if moving[column]]
        if moved:
            out[:, g] = joints[:, moved].mean(axis=1)
    return out


def check_view_map(measured: ViewMap | None, expect: Mapping[str, str] | None = None) -> Check:
    """The map, held against what is declared of it.

    Parameters
    ----------
    expect : for views, the group of joints that each is meant to see best (`{"cam0": "arm1"}`). A view is
        called wrong only where another group is shown to be seen more than twice as well (`beats`).
    """
    name = "view_map"
    if measured is None:
        return not_testable(name, "no view with two episodes in which a joint moves")
    evidence = measured.evidence()
    most = {view: measured.best(view) for view in measured.views}
    seen = "; ".join(measured.strongest(view) for view in measured.views)
    said = f"R2 (and R2 of what other groups do not explain): {seen}"
    if not expect:
        remedy = (
            "say which joints a view is meant to see best, from how it is mounted: --expect "
            f"{measured.views[0]}=GROUP, of {listed(measured.groups)}"
        )
        return not_testable(name, f"nothing is declared of the views. {said}", evidence, remedy)
    unknown = [f"view {v}" for v in expect if v not in measured.views]
    unknown += [f"group {g}" for g in expect.values() if g not in measured.groups]
    if unknown:
        message = f"declared, but not testable here: {', '.join(unknown)}; {said}"
        remedy = f"views: {', '.join(measured.views)}; groups: {', '.join(measured.groups)}"
        return Check(name, "warn", message, evidence, remedy)
    if measured.episodes.min() < MIN_EPISODES:
        return not_testable(name, f"fewer than {MIN_EPISODES} episodes; {said}", evidence)
    wrong = {
        view: most[view]
        for view, group in expect.items()
        if most[view] not in ("", group) and measured.beats(view, most[view], group)
    }
    evidence["on"] = wrong
    if not wrong:
        return Check(name, "pass", f"no view contradicts what is declared: {said}", evidence)
    swapped = [
        f"{a} and {b} look swapped"
        for a in wrong
        for b in wrong
        if a < b and expect[a] == wrong[b] and expect[b] == wrong[a]
    ]
    told = ", ".join(f"{view} is on {group}, declared on {expect[view]}" for view, group in wrong.items())
    return Check(
        name,
        "fail",
        f"{'; '.join([*swapped, told])}",
        evidence,
        "correct the names of the views (or of the joints): which camera is where must not be guessed later",
    )


def mean_pictures(rows: PixelRows) -> dict[int, FloatArray]:
    """The mean grey frame of each episode as a unit vector, (256,): about its mean, so that light does not
    matter."""
    grey = rows.small.mean(axis=3).reshape(len(rows.small), -1)
    mean = rows.clusters.sums(grey) / rows.clusters.count[:, None]
    return {episode: _unit(picture) for episode, picture in zip(rows.episodes, mean)}


def _unit(picture: FloatArray) -> FloatArray:
    about = picture - picture.mean()
    return about / max(float(np.linalg.norm(about)), 1e-9)


def check_views_within(rows: Mapping[str, PixelRows]) -> Check:
    """Whether an episode's views are those of the other episodes: exchanged ones look like each other's."""
    name = "views_within"
    pictures = {view: mean_pictures(one) for view, one in rows.items()}
    views = list(pictures)
    common = sorted(set.intersection(*(set(each) for each in pictures.values()))) if pictures else []
    if len(views) < 2 or len(common) < 3:
        return not_testable(name, "needs two views of three episodes")
    stack = np.array([[pictures[view][episode] for view in views] for episode in common])  # [E, V, 256]
    typical = np.array([_unit(np.median(stack[:, v], axis=0)) for v in range(len(views))])
    alike = stack @ typical.T  # [E, V, V]
    own = np.diagonal(alike, axis1=1, axis2=2)[..., None]
    other = ~np.eye(len(views), dtype=bool)
    clear = (own >= alike + ALIKE)[:, other].all(axis=1)
    if clear.mean() <= 0.5:  # what tells two views apart must do so in most episodes
        return not_testable(name, "the views look too much alike to be told apart")
    found = {
        episode: order for place, episode in enumerate(common) if (order := _assigned(alike[place], views))
    }
    if not found:
        return Check(name, "pass", f"each view shows the same place in all {len(common)} episodes")
    said = ", ".join(f"episode {episode}: {_told(order)}" for episode, order in list(found.items())[:5])
    evidence = {"episodes": list(found), "looks_like": {str(e): order for e, order in found.items()}}
    remedy = "cameras were exchanged between episodes: rename the views of these, or leave them out"
    return Check(name, "fail", said, evidence, remedy)


def check_views_against(rows: Mapping[str, PixelRows], reference: Mapping[str, PixelRows]) -> Check:
    """Views against those of a reference recording of the same set-up, by what they show on average."""
    name = "views_reference"
    views = [view for view in rows if view in reference]
    if len(views) < 2:
        return not_testable(name, "fewer than two views are in both recordings")
    here, there = (
        np.array([_unit(np.mean(list(mean_pictures(each[view]).values()), axis=0)) for view in views])
        for each in (rows, reference)
    )
    alike = here @ there.T
    evidence: dict[str, Any] = {
        "correlation": {
            view: {other: round(float(alike[v, w]), 4) for w, other in enumerate(views)}
            for v, view in enumerate(views)
        }
    }
    order = _assigned(alike, views)
    if not order:
        least = float(np.diag(alike).min())
        return Check(
            name, "pass", f"each view looks like the reference's (correlation {least:.2f} at least)", evidence
        )
    evidence["looks_like"] = order
    return Check(
        name, "fail", f"against the reference, {_told(order)}", evidence, "correct the names of the views"
    )


def _assigned(alike: FloatArray, views: Sequence[str]) -> dict[str, str]:
    """Views that are clearly another one, {view: what it looks like}; alike [V, V] are correlations."""
    rows, columns = linear_sum_assignment(-alike)
    moved = [(v, w) for v, w in zip(rows, columns) if v != w]
    if not moved or any(alike[v, w] < alike[v, v] + ALIKE for v, w in moved):
        return {}
    return {views[v]: views[w] for v, w in moved}


def _told(order: Mapping[str, str]) -> str:
    pairs = [f"{a} and {b} look swapped" for a, b in order.items() if order.get(b) == a and a < b]
    rest = [f"{a} looks like {b}" for a, b in order.items() if order.get(b) != a]
    return ", ".join(pairs + rest)


def draw_view_map(measured: ViewMap) -> Figure:
    """A heat map, a row a view and a column a group: R2, and under it what no other group explains."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    from reports.marks import GROUND, INK, MODEL_COLOURS, STYLE, WIDTH_IN

    shades = LinearSegmentedColormap.from_list("r2", [GROUND, MODEL_COLOURS[0]])
    n_views, n_groups = measured.r2.shape
    with mpl.rc_context({**STYLE, "axes.spines.bottom": False}):
        figure = Figure(figsize=(WIDTH_IN, 1.1 + 0.5 * n_views), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        image = axes.imshow(np.nan_to_num(measured.r2), cmap=shades, vmin=0, vmax=1, aspect="auto")
        for v in range(n_views):
            for g in range(n_groups):
                value, own = measured.r2[v, g], measured.own[v, g]
                text = "–" if np.isnan(value) else f"{value:.2f}"
                if n_groups <= 8 and not np.isnan(own):
                    text += f"\n({own:.2f})"
                best = measured.groups[g] == measured.best(measured.views[v])
                axes.text(
                    g,
                    v,
                    text,
                    ha="center",
                    va="center",
                    fontsize=9.5,
                    color=GROUND if value > 0.6 else INK,
                    fontweight="bold" if best else "normal",
                )
        axes.set_xticks(range(n_groups), list(measured.groups), rotation=0 if n_groups < 5 else 30)
        axes.set_yticks(range(n_views), list(measured.views))
        axes.set_xlabel(
            "R2 from 16 x 16 pixels, held out\n(in brackets: of what other groups do not explain)"
        )
        bar = figure.colorbar(image, ax=axes, ticks=[0, 0.5, 1], fraction=0.05)
        bar.outline.set_visible(False)
    return figure
