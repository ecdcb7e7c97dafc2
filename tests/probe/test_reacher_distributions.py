"""Distributions of the Reacher's pairs: slow definitions of each number, the floor, the verb, bad input."""

from __future__ import annotations

import ast
import csv
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from hardware.errors import InputError
from probe.reacher_distributions import (
    DEPENDENT,
    RAW,
    Gauge,
    correlations,
    measure_set,
    prepared,
    shape_of,
    sigreg_of,
    told_apart,
)
from probe.reacher_distributions_verb import names_of_sets
from probe.reacher_distributions_written import COLUMNS
from reports.reacher_found import BOTH, JOINTS, WHATS, WHITENED, Outcome
from sim.reacher_draws import Draw, draw_evaluation, draw_ou, draw_trajectory
from sim.reacher_pairs import PairSet, PairSetInfo, write_pair_set
from sim.reacher_trajectories import episodes_of
from tests.probe.command_line import run


def some(n: int, *seed: int) -> np.ndarray:
    """Independent standard normal samples (n, 2)."""
    return np.random.default_rng(seed).standard_normal((n, 2))


def pair_set(draw: Draw) -> PairSet:
    """A set as it would be opened, without its images."""
    info = PairSetInfo(
        condition=draw.condition, values=list(draw.values), count=draw.count, states=len(draw.states),
        seed=draw.seed, drawn_by="", draw_sha256=draw.sha256, source=draw.source, rendered_by={},
    )  # fmt: skip
    pairs = np.stack(draw.pairs) if draw.pairs else np.zeros((0, 0, 2), np.int64)
    return PairSet(Path("SET"), info, draw.states, pairs, draw.episodes)


def trajectory_draw(deltas: tuple[int, ...] = (1, 16), pairs: int = 120) -> Draw:
    return draw_trajectory(episodes_of("random", pairs // 10, 3, rows=40), deltas, pairs)


# -- SIGReg ------------------------------------------------------------------------------------------------


def epps_pulley_by_integral(x: np.ndarray) -> float:
    """n int |mean exp(i t x) - exp(-t^2/2)|^2 exp(-t^2/2) dt over [-3, 3], by adaptive quadrature."""

    def integrand(t: float) -> float:
        distance = np.exp(1j * t * x).mean() - np.exp(-(t**2) / 2)
        return float(abs(distance) ** 2 * np.exp(-(t**2) / 2))

    return len(x) * float(integrate.quad(integrand, -3, 3, epsabs=1e-10)[0])


def test_one_joint_is_the_integral_of_epps_and_pulley() -> None:
    samples = some(60, 1) ** 3
    for joint, name in enumerate(JOINTS):
        x = stats.zscore(samples[:, joint])
        assert sigreg_of(prepared(samples, name)) == pytest.approx(epps_pulley_by_integral(x), rel=2e-3)


def test_both_joints_are_the_mean_over_all_directions() -> None:
    samples = some(50, 2) ** 3 @ np.array([[1.0, 0.7], [0.0, 2.0]]) + 3
    z = stats.zscore(samples)
    angles = np.random.default_rng(18).uniform(0, np.pi, 400)
    of_each = [epps_pulley_by_integral(z @ [np.cos(one), np.sin(one)]) for one in angles]
    error = np.std(of_each) / np.sqrt(len(of_each))
    found = sigreg_of(prepared(samples, BOTH))
    assert found == pytest.approx(np.mean(of_each), abs=4 * error) and error < 0.03 * found
    turn = np.array([[np.cos(0.1), -np.sin(0.1)], [np.sin(0.1), np.cos(0.1)]])
    assert sigreg_of(z @ turn) == pytest.approx(sigreg_of(z), rel=1e-5)  # whichever 32 directions


def test_prepared_samples_have_the_moments_that_they_should() -> None:
    samples = some(200, 3) @ np.array([[1.0, 0.7], [0.0, 2.0]]) + 3
    whitened, both = prepared(samples, WHITENED), prepared(samples, BOTH)
    np.testing.assert_allclose(np.cov(whitened.T, ddof=0), np.eye(2), atol=1e-12)
    np.testing.assert_allclose(both, stats.zscore(samples), atol=1e-12)
    assert abs(np.corrcoef(both.T)[0, 1]) > 0.2
    np.testing.assert_array_equal(prepared(samples, RAW), samples)
    assert prepared(samples, JOINTS[1]).shape == (200, 1)


def test_whitening_takes_correlation_out_of_what_is_tested() -> None:
    samples = some(400, 4) @ np.array([[1.0, 1.0], [0.0, 1.0]])
    found = Gauge(0, 40).test(samples)
    assert found[BOTH].above and not found[WHITENED].above
    assert not found[JOINTS[0]].above and not found[JOINTS[1]].above


# -- the floor ---------------------------------------------------------------------------------------------


def test_the_floor_holds_95_percent_of_gaussian_samples() -> None:
    gauge = Gauge(0, 400)
    floors = {what: gauge.floor(40, what) for what in WHATS}
    inside = {what: 0 for what in WHATS}
    for seed in range(300):
        samples = 5 * some(40, 5, seed) - 2
        for what, floor in floors.items():
            inside[what] += floor.low <= sigreg_of(prepared(samples, what)) <= floor.high
    assert all(0.90 < count / 300 < 0.99 for count in inside.values()), inside


def test_the_floor_of_samples_as_drawn_is_that_of_theory_and_z_scored_ones_lie_lower() -> None:
    gauge = Gauge(1, 400)
    # of n normal samples, whatever n: int (1 - exp(-t^2)) exp(-t^2/2) dt over [-3, 3]
    expected = integrate.quad(lambda t: (1 - np.exp(-(t**2))) * np.exp(-(t**2) / 2), -3, 3)[0]
    assert expected == pytest.approx(1.053, abs=2e-3)
    assert gauge.floor(60, RAW).mean == pytest.approx(expected, rel=0.1)
    # mean and sd fitted: the limit loses t^2 exp(-t^2) and t^4/2 exp(-t^2) (Epps and Pulley, 1983)
    fitted = integrate.quad(
        lambda t: (1 - np.exp(-(t**2)) * (1 + t**2 + t**4 / 2)) * np.exp(-(t**2) / 2), -3, 3
    )[0]
    assert gauge.floor(60, JOINTS[0]).mean == pytest.approx(fitted, rel=0.15)
    assert fitted < 0.35


def test_tails_and_flat_tops_lie_above_the_floor_and_few_gaussian_samples_do() -> None:
    gauge = Gauge(0, 60)
    rng = np.random.default_rng(6)
    gaussian = [gauge.test(rng.standard_normal((400, 2)) * [3, 0.1]) for _ in range(30)]
    assert all(sum(found[what].above for found in gaussian) <= 5 for what in WHATS)
    for samples in (rng.standard_t(3, (400, 2)), rng.uniform(-1, 1, (400, 2))):
        found = gauge.test(samples)
        assert all(
            tested.above and tested.share == pytest.approx(1 / (1 + tested.floor.repeats))
            for tested in found.values()
        )
        assert all(tested.interval is None for tested in found.values())


def test_a_floor_depends_on_its_seed_and_number_alone() -> None:
    first, second = Gauge(7, 20), Gauge(7, 20)
    first.gaussian(30)
    np.testing.assert_array_equal(first.gaussian(50)[BOTH], second.gaussian(50)[BOTH])
    assert not np.array_equal(first.gaussian(50)[BOTH], Gauge(8, 20).gaussian(50)[BOTH])
    assert abs(np.corrcoef(first.gaussian(50)[BOTH], first.gaussian(51)[BOTH])[0, 1]) < 0.7
    longer = Gauge(7, 25).gaussian(50)[BOTH]
    np.testing.assert_array_equal(longer[:20], first.gaussian(50)[BOTH])


def test_excess_does_not_grow_with_the_number_of_samples() -> None:
    gauge = Gauge(0, 20)
    rng = np.random.default_rng(8)
    few, many = (gauge.test(rng.uniform(-1, 1, (n, 2)))[JOINTS[0]] for n in (4000, 32000))
    assert many.sigreg > 4 * few.sigreg
    assert many.excess == pytest.approx(few.excess, rel=0.3)


# -- pairs of one episode ----------------------------------------------------------------------------------


def test_dependent_gaussian_pairs_lie_above_the_floor_and_are_not_told_apart() -> None:
    gauge = Gauge(0, 40)
    episodes, once = np.repeat(np.arange(40), 10), np.arange(0, 400, 10)
    above = apart = 0
    for seed in range(10):
        samples = np.repeat(some(40, 9, seed), 10, axis=0) + 0.3 * some(400, 10, seed)
        tested, alone = gauge.test(samples, episodes)[BOTH], gauge.test(samples[once])[BOTH]
        above += tested.above
        apart += told_apart(tested, alone, True) == "yes"
    assert above >= 8 and apart <= 1


def test_dependent_pairs_far_from_gaussian_are_told_apart() -> None:
    gauge = Gauge(0, 40)
    rng = np.random.default_rng(11)
    episodes = np.repeat(np.arange(40), 10)
    samples = np.sign(rng.standard_normal((400, 2))) + 0.1 * rng.standard_normal((400, 2))
    tested = gauge.test(samples, episodes)[JOINTS[0]]
    assert tested.interval is not None and tested.interval[0] > tested.floor.high
    assert tested.interval[0] < tested.sigreg < tested.interval[1]
    assert told_apart(tested, None, True) == "yes"


def test_what_is_told_apart() -> None:
    floor = Gauge(0, 20).floor(20, BOTH)
    high, low = Outcome(20, floor.high + 1, floor, 0.05), Outcome(20, floor.mean, floor, 0.5)
    assert told_apart(low, high, True) == told_apart(low, None, False) == "no"
    assert told_apart(high, None, False) == "yes"
    assert told_apart(high, None, True) == told_apart(high, low, True) == DEPENDENT
    assert told_apart(high, high, True) == "yes"
    beyond = dataclasses.replace(high, interval=(floor.high + 0.1, floor.high + 3))
    assert told_apart(beyond, low, True) == "yes"


def test_the_interval_is_wider_where_pairs_of_an_episode_move_together() -> None:
    gauge = Gauge(0, 40)
    rng = np.random.default_rng(12)
    episodes = np.repeat(np.arange(40), 10)
    together = np.repeat(rng.uniform(-1, 1, (40, 2)), 10, axis=0)
    widths = []
    for samples in (together, rng.permutation(together)):
        low, high = gauge.test(samples, episodes)[JOINTS[0]].interval or (0, 0)
        widths.append(high - low)
    assert widths[0] > 1.5 * widths[1] > 0


def test_the_interval_of_unequal_episodes_is_that_of_the_slow_way() -> None:
    rng = np.random.default_rng(19)
    episodes = np.repeat(np.arange(24), np.where(np.arange(24) % 4 == 0, 40, 2))
    samples = rng.uniform(-1, 1, (24, 2))[episodes] + 0.2 * rng.standard_normal((len(episodes), 2))
    found = Gauge(0, 400).test(samples, episodes)[JOINTS[0]]
    assert found.interval is not None
    again = []
    for _ in range(400):
        rows = np.concatenate([np.flatnonzero(episodes == one) for one in rng.integers(0, 24, 24)])
        x = stats.zscore(samples[rows, 0])
        again.append(sigreg_of(x[:, None]) / len(rows))
    width = len(samples) * np.diff(np.quantile(again, [0.025, 0.975]))[0]
    low = found.sigreg + len(samples) * (np.quantile(again, 0.025) - np.mean(again))
    assert found.interval[0] == pytest.approx(max(low, 0), abs=0.15 * width)
    assert found.interval[1] == pytest.approx(low + width, abs=0.15 * width)


def test_correlations_are_pearsons_with_fishers_interval_or_that_of_episodes() -> None:
    first = some(300, 13)
    second = 0.8 * first + 0.6 * some(300, 14)
    for joint, found in enumerate(correlations(first, second, None, (0.8, None), 0)):
        by_scipy = stats.pearsonr(first[:, joint], second[:, joint])
        ends = by_scipy.confidence_interval(0.95)
        assert found.value == pytest.approx(by_scipy.statistic, abs=1e-12)
        assert (found.low, found.high) == pytest.approx((ends.low, ends.high), abs=1e-9)
        assert found.theirs == (0.8, None)[joint]
    episodes = np.repeat(np.arange(30), 10)
    of_episodes, _ = correlations(first, second, episodes, (None, None), 0)
    assert of_episodes.low is not None and of_episodes.high is not None
    rng = np.random.default_rng(15)  # drawn again, the slow way
    again = []
    for _ in range(1000):
        rows = np.concatenate([np.flatnonzero(episodes == one) for one in rng.integers(0, 30, 30)])
        again.append(np.corrcoef(first[rows, 0], second[rows, 0])[0, 1])
    np.testing.assert_allclose(
        [of_episodes.low, of_episodes.high], np.quantile(again, [0.025, 0.975]), atol=0.02
    )
    few, _ = correlations(first, second, np.repeat([0, 1], 150), (None, None), 0)
    assert few.low is None and few.high is None and few.value == of_episodes.value


# -- sets --------------------------------------------------------------------------------------------------


def test_shapes_are_scipys() -> None:
    x = np.random.default_rng(16).gamma(2, 2, 500)
    found = shape_of(x)
    assert (found.mean, found.sd) == pytest.approx((x.mean(), x.std()))
    assert found.skewness == pytest.approx(((x - x.mean()) ** 3).mean() / x.std() ** 3)
    assert found.excess_kurtosis == pytest.approx(((x - x.mean()) ** 4).mean() / x.std() ** 4 - 3)
    steps = np.arange(501) / 500
    for values, distance in ((x, found.ks), (stats.zscore(x), found.ks_standardised)):
        theory = stats.norm.cdf(np.sort(values))
        assert distance == pytest.approx(max((steps[1:] - theory).max(), (theory - steps[:-1]).max()))
    assert found.beyond_pi == (x > np.pi).mean()


def test_ou_pairs_are_what_the_theorem_says() -> None:
    draw = draw_ou((0.3, 0.9), 400)
    found = measure_set(pair_set(draw), "ou", Gauge(0, 40))
    assert (found.condition, found.letter, found.episodes, found.source) == ("ou", "rho", None, None)
    first = draw.states[:400]
    for number, of_value in enumerate(found.values):
        second = draw.states[400 * (number + 1) : 400 * (number + 2)]
        np.testing.assert_allclose(
            of_value.differences[1].samples, second[:, 1] - of_value.value * first[:, 1], atol=1e-12
        )
        assert of_value.sd_expected == pytest.approx(np.sqrt(1 - of_value.value**2))
        for shape in of_value.differences:
            assert shape.sd == pytest.approx(of_value.sd_expected, rel=0.1)
        assert not of_value.once_differences and not of_value.once_marginals
        assert {each.theirs for each in of_value.correlations} == {of_value.value}
    tests = [
        one for each in found.values for one in (*each.of_differences.values(), *each.of_marginals.values())
    ]
    assert len(tests) == 16 and sum(tested.above for tested in tests) <= 2


def test_trajectory_pairs_know_their_episodes_and_theirs() -> None:
    draw = trajectory_draw()
    found = measure_set(pair_set(draw), "traj", Gauge(0, 20))
    assert (found.episodes, found.source, found.count) == (12, "random", 120)
    one = found.values[0]
    rows = draw.pairs[0]
    np.testing.assert_allclose(
        one.differences[0].samples, (draw.states[rows[:, 1]] - draw.states[rows[:, 0]])[:, 0]
    )
    assert one.sd_expected is None and [each.theirs for each in one.correlations] == [1.000, 0.999]
    assert all(each.interval is not None for each in one.of_differences.values())
    assert {each.n for each in one.once_differences.values()} == {12}
    alone = draw.states[rows[::10, 1]] - draw.states[rows[::10, 0]]
    assert one.once_differences[BOTH].sigreg == sigreg_of(prepared(alone, BOTH))
    assert one.of_marginals[BOTH].sigreg == sigreg_of(prepared(draw.states[rows[:, 1]], BOTH))


def test_without_episodes_the_floor_assumes_independence() -> None:
    draw = dataclasses.replace(trajectory_draw((1,)), episodes=None)
    found = measure_set(pair_set(draw), "traj", Gauge(0, 20))
    assert found.episodes is None and not found.values[0].once_differences
    assert all(each.interval is None for each in found.values[0].of_differences.values())


def test_progress_counts_up_to_its_total() -> None:
    calls: list[tuple[int, int, str]] = []
    measure_set(pair_set(trajectory_draw()), "t", Gauge(0, 20), lambda *call: calls.append(call))
    jobs = {what: [done for done, _, each in calls if each == what] for _, _, what in calls}
    assert jobs == {
        "floor of 120 pairs": list(range(1, 21)),
        "floor of 12 pairs": list(range(1, 21)),
        "measuring t": list(range(1, 81)),
    }
    assert calls[-1][:2] == (80, 80)


def wrapped() -> Draw:
    draw = trajectory_draw((1,))
    turned = draw.states - draw.states[:, :1].min() + np.pi - 0.05  # near half a turn and beyond
    return dataclasses.replace(draw, states=(turned + np.pi) % (2 * np.pi) - np.pi)


def still() -> Draw:
    draw = draw_ou((0.5,), 20)
    return dataclasses.replace(draw, states=draw.states * [1, 0])


def same() -> Draw:
    draw = draw_ou((0.5,), 20)
    return dataclasses.replace(draw, states=np.repeat(draw.states[:, :1], 2, axis=1))


def broken() -> Draw:
    draw = draw_ou((0.5,), 20)
    draw.states[7, 1] = np.nan
    return draw


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (draw_evaluation(20), "SET: is an evaluation set: single images, no pairs"),
        (draw_ou((0.5,), 1), "SET: has 1 pair of each value - make 10 or more"),
        (draw_ou((0.5,), 9), "SET: has 9 pairs of each value"),
        (broken(), "SET: has a state that is not finite, in row 7"),
        (still(), "SET: the wrist has the same first members in all pairs of 0.5"),
        (same(), "SET: first members of both joints are the same up to scale in all pairs of 0.5"),
        (wrapped(), "of delta 1 jump by up to 6."),
    ],
)
def test_sets_that_have_no_distribution(draw: Draw, message: str) -> None:
    with pytest.raises(InputError) as caught:
        measure_set(pair_set(draw), "SET", Gauge(0, 20))
    assert message in str(caught.value)


def test_too_few_repeats() -> None:
    with pytest.raises(InputError, match="--repeats: is 19 - a 95 % range takes 20 or more"):
        Gauge(0, 19)


# -- the verb ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sets of each kind, of few images."""
    to = tmp_path_factory.mktemp("sets")
    draws = {
        "ou": draw_ou((0.3, 0.9), 20),
        "traj": draw_trajectory(episodes_of("random", 10, 0, rows=30), (1, 4), 20),
        "eval": draw_evaluation(9),
        "one": draw_ou((0.5,), 1),
    }
    draws["few"] = draws["traj"]  # ten an episode: two episodes
    for name, draw in draws.items():
        write_pair_set(draw, to / name, workers=1)
    return to


WRITTEN = (
    "autocorrelation.png", "differences.png", "distributions.csv", "distributions.json", "marginals.png",
    "sigreg.png", "table.md",
)  # fmt: skip


def test_the_verb_writes_numbers_table_and_figures(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "new" / "found"
    words = ("reacher", "distributions", folder / "ou", folder / "traj", "--to", to, "--repeats", 20)
    code, out, err = run(capsys, *words, "--json")
    assert code == 0 and "floor of 20 pairs: 20 of 20" in err and "measuring traj" in err
    found: dict[str, Any] = json.loads(out)
    assert tuple(sorted(path.name for path in to.iterdir())) == WRITTEN
    assert json.loads((to / "distributions.json").read_text()) == found
    ou, traj = found["sets"]
    assert [one["rho"] for one in ou["values"]] == [0.3, 0.9]
    assert [one["delta"] for one in traj["values"]] == [1, 4]
    assert ou["draw_sha256"] == draw_ou((0.3, 0.9), 20).sha256
    assert set(ou["values"][0]["differences"]["sigreg"]) == set(WHATS)
    assert found["theirs"]["floor"] == 1.2 and found["theirs"]["beyond_pi"]["traj"] == "13.6 %"
    pairs = PairSet.open(folder / "ou")
    first, second = (pairs.states[side] for side in pairs.pairs(0.9).T)
    sigreg = sigreg_of(prepared(second - 0.9 * first, BOTH))
    assert ou["values"][1]["differences"]["sigreg"][BOTH]["sigreg"] == pytest.approx(sigreg, rel=1e-5)
    rows = list(csv.DictReader((to / "distributions.csv").read_text().splitlines()))
    assert tuple(rows[0]) == COLUMNS and len(rows) == 2 * (2 + 2 * 2 * 4)
    assert all(None not in row and None not in row.values() for row in rows)
    table = (to / "table.md").read_text()
    assert "| traj | delta 1 | shoulder |" in table and "| 1.000 |" in table
    assert "| ou | wrist | 60 |" in table


def test_the_same_sets_give_the_same_bytes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        code, out, err = run(
            capsys,
            "reacher",
            "distributions",
            folder / "ou",
            "--to",
            tmp_path / name,
            "--repeats",
            20,
            "--quiet",
        )
        assert (code, out, err) == (0, "", "")
    for name in WRITTEN:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    code, *_ = run(
        capsys,
        "reacher",
        "distributions",
        folder / "ou",
        "--to",
        tmp_path / "c",
        "--repeats",
        20,
        "--seed",
        1,
    )
    assert code == 0
    assert (tmp_path / "a" / "table.md").read_bytes() != (tmp_path / "c" / "table.md").read_bytes()


def test_few_episodes_leave_no_interval_and_nothing_told_apart(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(
        capsys,
        "reacher",
        "distributions",
        folder / "few",
        "--to",
        tmp_path / "few",
        "--repeats",
        20,
        "--json",
    )
    assert code == 0
    (one,) = json.loads(out)["sets"]
    assert one["episodes"] == 2
    tests = [each for value in one["values"] for each in value["second_members"]["sigreg"].values()]
    assert {each["interval"] for each in tests} == {None}
    assert {each["told_apart"] for each in tests} <= {"no", DEPENDENT}


def test_a_person_reads_what_is_told_apart(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(
        capsys, "reacher", "distributions", folder / "traj", "--to", tmp_path / "found", "--repeats", 20
    )
    text = " ".join(out.split())
    assert code == 0 and "traj: traj, 20 pairs each; SIGReg of their differences" in text
    assert "delta 4 shoulder" in text and "of Gaussian pairs up to:" in text


def test_names_of_sets(tmp_path: Path) -> None:
    assert names_of_sets([tmp_path / "a" / "ou", tmp_path / "b"]) == ["ou", "b"]
    assert names_of_sets([tmp_path / "a" / "ou", tmp_path / "b" / "ou"]) == ["a/ou", "b/ou"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("eval", "--to", "T"), "eval: is an evaluation set: single images, no pairs"),
        (("ou", "one", "--to", "T"), "one: has 1 pair of each value"),
        (("ou", "absent", "--to", "T"), "absent: holds no pair set"),
        (("ou", "traj/../ou", "--to", "T"), "is given twice"),
        (("ou", "--to", "traj"), "--to: traj is a pair set - choose another folder"),
        (("ou", "--to", "T", "--repeats", "5"), "--repeats"),
        (("--to", "T"), "SET"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    words: tuple[str, ...],
    message: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    code, _, err = run(capsys, "reacher", "distributions", *words)
    assert code == 2 and message in err and "Traceback" not in err
    assert sorted(folder.rglob("*")) == before


def test_a_file_in_the_way_is_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = run(
        capsys, "reacher", "distributions", folder / "ou", "--to", tmp_path / "file", "--repeats", 20
    )
    assert code == 2 and "cannot be written" in err and "Traceback" not in err


def test_no_global_random_state_is_read() -> None:
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = Gauge(0, 20).test(some(30, 17), np.repeat(np.arange(10), 3))
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    assert Gauge(0, 20).test(some(30, 17), np.repeat(np.arange(10), 3)) == before


def test_importing_the_verb_loads_no_more_than_the_others() -> None:
    code = (
        "import sys, probe.reacher_verbs; before = set(sys.modules); "
        "import probe.reacher_distributions_verb; "
        "print(sorted(name for name in set(sys.modules) - before if '.' not in name))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ast.literal_eval(done.stdout))
    assert not loaded & {"matplotlib", "scipy", "torch", "mujoco", "reports", "sim", "encoders"}
