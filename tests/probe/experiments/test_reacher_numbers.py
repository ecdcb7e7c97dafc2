"""Reacher's numbers against scikit-learn, and a training from images to numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from encoders.pair_training import PairRecipe
from probe.experiments.numbers import LOSSES, NUMBERS
from probe.experiments.reacher import ReacherJob, States, measured, train_and_measure


class Angles:
    """An encoder that reads angles which stand in the pixels, bends one of them and adds noise."""

    width = 2

    def encode(self, images: np.ndarray) -> np.ndarray:
        z = images[:, 0, 0, :2, :2].astype(np.float64).reshape(len(images), 4)[:, [0, 2]] / 32 - 4
        return np.column_stack([z[:, 1] + 0.1 * z[:, 0] ** 2, 2 * z[:, 0]])


def painted(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Images that hold the angles, and the angles as these hold them."""
    levels = np.clip(np.round((z + 4) * 32), 0, 255).astype(np.uint8)
    images = np.zeros((len(z), 4, 4, 3), np.uint8)
    images[:, 0, 0, 0], images[:, 0, 1, 0] = levels.T
    return images, levels / 32 - 4


def test_the_numbers_are_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    fit, new, own = (painted(rng.normal(scale=s, size=(400, 2))) for s in (0.5, 1.0, 0.5))
    found = measured(Angles(), fit, new, own)  # type: ignore[arg-type]
    assert {*found, *LOSSES} == set(NUMBERS["reacher"])  # whatever a file may name is there
    h_fit, h, h_own = (Angles().encode(images[:, None]) for images, _ in (fit, new, own))
    there, back = LinearRegression().fit(h_fit, fit[1]), LinearRegression().fit(fit[1], h_fit)
    assert found["r2_hz"] == pytest.approx(
        r2_score(new[1], there.predict(h), multioutput="variance_weighted")
    )
    assert found["r2_hz_uniform"] == pytest.approx(r2_score(new[1], there.predict(h)))
    assert found["r2_zh"] == pytest.approx(r2_score(h, back.predict(new[1]), multioutput="variance_weighted"))
    each = r2_score(new[1], there.predict(h), multioutput="raw_values")
    assert [found["r2_hz_0"], found["r2_hz_1"]] == pytest.approx(list(each))
    circle = lambda z: np.concatenate([np.sin(z), np.cos(z)], axis=1)  # noqa: E731
    read = LinearRegression().fit(h_fit, circle(fit[1])).predict(h)
    expected = r2_score(circle(new[1]), read, multioutput="variance_weighted")
    assert found["r2_hz_sincos"] == pytest.approx(expected)
    assert found["r2_hz_own"] == pytest.approx(
        r2_score(own[1], there.predict(h_own), multioutput="variance_weighted")
    )
    assert found["r2_hz"] < found["r2_hz_own"]  # type: ignore[operator]
    assert 0 < found["procrustes"] < 0.3  # type: ignore[operator]


def job(**changes: object) -> ReacherJob:
    recipe = PairRecipe(steps=60, batch_size=64, slices=16, lam=0.2)
    facts = {
        "condition": "ou",
        "value": 0.9,
        "pairs": 500,
        "evaluation": 300,
        "recipe": recipe,
        "images": 200,
    }
    return ReacherJob.model_validate({**facts, **changes})


def dots(angles: np.ndarray) -> np.ndarray:
    """A bright square whose place says both angles, uint8 (n, 16, 16, 3)."""
    images = np.full((len(angles), 16, 16, 3), 30, np.uint8)
    for image, (y, x) in zip(images, np.clip(np.round(8 + 2.5 * angles), 2, 13).astype(int)):
        image[y - 2 : y + 3, x - 2 : x + 3] = (250, 200, 20)
    return images


@pytest.mark.parametrize("held_out", [0.0, 0.2])
def test_from_images_to_numbers(tmp_path: Path, held_out: float) -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(size=(500, 2))
    both = np.concatenate([z, 0.9 * z + np.sqrt(1 - 0.81) * rng.normal(size=z.shape)])
    pairs = np.stack([np.arange(500), np.arange(500) + 500], axis=1)
    new = rng.normal(size=(300, 2))
    training, evaluation = States(dots(both), both), States(dots(new), new)
    outcome = train_and_measure(job(held_out=held_out), training, pairs, evaluation, tmp_path / "run")
    assert outcome.numbers["r2_hz"] > 0.15 and outcome.numbers["r2_hz_own"] > 0.15  # type: ignore[operator]
    assert outcome.losses["steps"][-1] == 60 and outcome.losses["last"] > 0
    again = train_and_measure(job(held_out=held_out), training, pairs, evaluation, tmp_path / "run")
    assert again.numbers == outcome.numbers


def test_a_training_that_diverges_has_no_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(size=(500, 2))
    states, pairs = States(dots(z), z), rng.integers(0, 500, size=(500, 2))
    wild = PairRecipe(steps=60, batch_size=64, slices=16, learning_rate=1e30, batch_norm=False)
    outcome = train_and_measure(job(recipe=wild), states, pairs, states, tmp_path / "run")
    assert outcome.numbers == {} and outcome.losses["last"] is None and outcome.losses["tail"] is None


def test_untrained_has_numbers_and_no_loss(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(size=(500, 2))
    states, pairs = States(dots(z), z), rng.integers(0, 500, size=(500, 2))
    outcome = train_and_measure(job(recipe=PairRecipe(steps=0)), states, pairs, states, tmp_path / "run")
    assert outcome.numbers["r2_hz"] is not None and outcome.losses["steps"] == []


def test_the_key_is_of_all_that_decides() -> None:
    other_recipe = PairRecipe(steps=60, batch_size=64, slices=16, lam=0.2, seed=1)
    jobs = [
        job(),
        job(value=0.8),
        job(pairs=400),
        job(evaluation=200),
        job(held_out=0.1),
        job(recipe=other_recipe),
    ]
    assert len({one.key for one in jobs}) == 6 and job().key == job().key
