"""Studies with several seeds: each network is made and probed, and bars read the means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bars import Ledger, Results
from probe.bootstrap import Bootstrap, mean_estimate
from probe.cli import main
from probe.statistics import ResidualSums, score_joints
from tests.probe.studies import STUDY, make_study

SEEDED = STUDY.replace("    on: moves\n", "    on: moves\n    seeds: [3, 4]\n", 1).replace(
    "pixels.r2.mean - W1.r2.mean > -5", "W1.r2.mean - untrained.r2.mean > -5"
)


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    study = make_study(tmp_path_factory.mktemp("seeds"), SEEDED)
    for verb in ("freeze", "probe"):
        with pytest.raises(SystemExit) as stopped:
            main([verb, str(study), "--quiet"])
        assert not stopped.value.code
    return study


def test_the_encoder_has_the_means_of_its_networks(probed: Path) -> None:
    measured = Results.load(probed).by_path
    for encoder in ("W1", "untrained"):
        for metric in ("r2.mean", "r2.joint0", "anisotropy", "null.mean", "map.rcond", "width.rankme"):
            of_seeds = [measured[f"{encoder}_s{seed}.{metric}"].value for seed in (3, 4)]
            assert measured[f"{encoder}.{metric}"].value == pytest.approx(np.mean(of_seeds)), metric
    one, other = (measured[f"W1_s{seed}.r2.mean"] for seed in (3, 4))
    mean = measured["W1.r2.mean"]
    assert one.value != other.value and mean.low is not None and mean.low < mean.value <= mean.high
    assert f"mean of 2 seeds, {one.value:.3f}, {other.value:.3f}" in mean.note
    gap = measured["W1.r2.mean - untrained.r2.mean"]
    assert (
        gap.value == pytest.approx(mean.value - measured["untrained.r2.mean"].value) and gap.low is not None
    )
    assert "W1_s3.r2.mean - W1_s4.r2.mean" not in measured  # encoders are compared, not their networks


def test_the_ledger_binds_each_network_and_the_card_shows_the_mean(probed: Path) -> None:
    events = Ledger.open(probed).events
    networks = {"W1_s3", "W1_s4", "untrained_s3", "untrained_s4", "pixels"}
    assert set(events[0].body["encoders"]) == networks
    trained = [event.body for event in events if event.event == "trained"]
    assert {body["encoder"] for body in trained} == networks
    assert len({body["fingerprint"] for body in trained}) == 5
    with pytest.raises(SystemExit) as stopped:
        main(["verify", str(probed), "--quiet"])
    assert not stopped.value.code
    card = (probed / "card.md").read_text()
    mean = Results.load(probed).by_path["W1.r2.mean"].value
    assert f"{mean:.3f}" in card and "once for each seed: 3, 4" in card and "Seeds" in card


def test_the_mean_of_estimates_is_the_estimate_of_the_mean() -> None:
    """Of two networks' scores: the draws of the mean, and an interval narrower than the wider of the two."""
    rng = np.random.default_rng(0)
    episodes = np.repeat(np.arange(12), 20)
    y = rng.normal(size=(240, 2))
    bootstrap = Bootstrap.draw(np.arange(12), rng, resamples=500, name="d", interval="studentised")
    from probe.clusters import EpisodeClusters

    clusters = EpisodeClusters.of(episodes)
    scored = [
        score_joints(
            ResidualSums.of(y, y + rng.normal(size=y.shape) * noise, clusters),
            bootstrap,
            np.array([True, True]),
        ).mean
        for noise in (0.3, 0.6)
    ]
    mean = mean_estimate(scored)
    assert mean.value == pytest.approx((scored[0].value + scored[1].value) / 2)
    assert np.allclose(mean.draws, (scored[0].draws + scored[1].draws) / 2)
    assert mean.interval == "studentised" and mean.low < mean.value < mean.high <= 1
    widths = [one.high - one.low for one in scored]
    assert mean.high - mean.low < max(widths)
    same = mean_estimate([scored[0], scored[0]])
    assert (same.low, same.high) == pytest.approx((scored[0].low, scored[0].high))
    elsewhere = Bootstrap.draw(np.arange(12), rng, resamples=500, name="other")
    with pytest.raises(ValueError, match="same episodes"):
        mean_estimate([scored[0], elsewhere.estimate(0.5, np.zeros(500))])
