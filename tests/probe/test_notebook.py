"""What a notebook gets: the same numbers as the command, as an object that prints and becomes a frame."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

import probe
from bars import ProbeSettings
from bars.study import RankingSettings
from hardware import InputError
from probe import g1b_probe, ridge_probe

NAMES = ("pan", "lift", "still")
SETTINGS = ProbeSettings(resamples=200, permutations=20)


def world(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """12 episodes of 40 rows: latents are a rotation of two joints and noise; a third joint hardly moves."""
    rng = np.random.default_rng(seed)
    episodes = np.repeat(np.arange(12), 40)
    joints = np.column_stack([0.5 * rng.standard_normal((480, 2)), 0.001 * rng.standard_normal(480)])
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    latents = np.column_stack([joints[:, :2], rng.standard_normal((480, 4))]) @ turn
    return latents.astype(np.float32), joints, episodes


def test_it_reads_what_is_there_and_says_what_cannot_be_tested() -> None:
    latents, joints, episodes = world()
    probed = ridge_probe(
        latents, joints, episodes, evaluate=[9, 10, 11], joint_names=NAMES, settings=SETTINGS
    )
    frame = probed.to_frame().set_index("joint")
    assert isinstance(frame, pandas.DataFrame)
    assert (frame.loc[["pan", "lift"], "r2"] > 0.99).all() and np.isnan(frame.loc["still", "r2"])
    assert frame.loc["mean", "r2"] == pytest.approx(frame.loc[["pan", "lift"], "r2"].mean())
    assert frame.loc["pan", "low"] < frame.loc["pan", "r2"] and frame.loc["pan", "null"] < 0.2
    assert (probed.n_train, probed.n_evaluate, probed.n_episodes) == (360, 120, 3)
    text = str(probed)
    assert "360 training rows, 120 evaluation rows of 3 episodes" in text and "too few episodes" in text
    again = ridge_probe(latents, joints, episodes, evaluate=[9, 10, 11], joint_names=NAMES, settings=SETTINGS)
    assert again.rows() == probed.rows() or text == str(again)  # NaN is not equal to itself


def test_predictions_are_those_of_the_fit() -> None:
    latents, joints, episodes = world()
    probed = ridge_probe(latents, joints, episodes, evaluate=[0], settings=SETTINGS)
    held = episodes == 0
    error = joints[held] - probed.fit.predict(latents[held])
    total = joints[held] - joints[held].mean(axis=0)
    r2 = 1 - (error**2).sum(axis=0) / (total**2).sum(axis=0)
    assert probed.scores.joints[0].value == pytest.approx(r2[0])
    assert probed.joints == ("joint0", "joint1", "joint2")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"evaluate": [12]}, "12 is no episode of the rows"),
        ({"evaluate": list(range(12))}, "no episode to train on"),
        ({"evaluate": np.arange(480) > 300}, "must be labels of episodes"),
        ({"evaluate": 7}, "must be labels of episodes"),
        ({"episodes": np.where(np.arange(480) < 9, np.nan, 1.0)}, "episodes: are not all finite"),
        ({"latents": np.full((480, 6), "a", object)}, "latents: are no real numbers"),
        ({"latents": np.full((480, 6), 1j)}, "latents: are no real numbers"),
        ({"joints": np.ma.masked_less(np.zeros((480, 3)), 1.0)}, "not finite|NaN|finite"),
        ({"evaluate": []}, "or none to evaluate"),
        ({"joint_names": ["pan"]}, "1 names for 3 joints"),
        ({"episodes": np.zeros(3)}, "do not fit"),
        ({"latents": np.full((480, 6), np.nan)}, "not finite"),
    ],
)
def test_what_cannot_be_probed_is_said(changes: dict[str, object], problem: str) -> None:
    latents, joints, episodes = world()
    given = {"latents": latents, "joints": joints, "episodes": episodes, "evaluate": [9], **changes}
    with pytest.raises(InputError, match=problem):
        ridge_probe(**given, settings=SETTINGS)  # type: ignore[arg-type]


def test_every_public_name_is_there() -> None:
    assert sorted(probe.__all__) == probe.__all__
    for name in probe.__all__:
        assert getattr(probe, name) is not None


def moments(seed: int = 0) -> dict[str, np.ndarray]:
    """12 episodes of 60 rows, 0.05 s apart: joints follow what is sent; latents are the joints, turned."""
    rng = np.random.default_rng(seed)
    actions = np.repeat(rng.standard_normal((12, 12, 3)), 5, axis=1)  # held for five rows
    joints = np.zeros((12, 60, 3))
    for t in range(1, 60):
        joints[:, t] = joints[:, t - 1] + 0.4 * (actions[:, t - 1] - joints[:, t - 1])
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    return {
        "latents": (joints @ turn).reshape(-1, 3).astype(np.float32),
        "joints": joints.reshape(-1, 3),
        "actions": actions.reshape(-1, 3),
        "time_s": np.tile(np.arange(60) * 0.05, 12),
        "episodes": np.repeat(np.arange(12), 60),
    }


def test_chunks_are_ranked_from_arrays() -> None:
    settings = RankingSettings(candidates=4, horizon=5, beside=[2])
    ranked = g1b_probe(**moments(), evaluate=[9, 10, 11], settings=settings, resamples=200)
    one = ranked["hard", 5]
    assert one.latents.top1.value > 0.9 and one.n_episodes == 3
    assert "candidates" in str(ranked) and len(ranked.to_frame()) == 2 * 2 * 4
    again = g1b_probe(**moments(), evaluate=[9, 10, 11], settings=settings, resamples=200)
    np.testing.assert_array_equal(again["hard", 5].start_ns, one.start_ns)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"evaluate": [12]}, "12 is no episode of the rows"),
        ({"time_s": np.zeros(3)}, "time_s: must be 720 finite seconds"),
        ({"time_s": np.zeros(720)}, "time does not advance"),
        ({"actions": np.zeros(720)}, r"latents \(720, 3\), joints \(720, 3\), actions \(720,\)"),
        ({"latents": np.full((720, 2), np.nan)}, "latents of row 0, episode 0, are not finite"),
        ({"actions": np.full((720, 3), np.nan)}, "no training row has an action in force"),
    ],
)
def test_rows_that_cannot_be_ranked_are_named(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        g1b_probe(**{**moments(), "evaluate": [9, 10, 11], **changes})  # type: ignore[arg-type]
