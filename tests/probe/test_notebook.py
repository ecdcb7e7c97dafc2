"""What a notebook gets: the same numbers as the command, as an object that prints and becomes a frame."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

import probe
from bars import ProbeSettings
from hardware import InputError
from probe import ridge_probe

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
