"""G1b by an encoder's own predictor: asked at its own steps, beside ridge on the same anchors."""

from __future__ import annotations

import numpy as np
import pytest
from test_ranking import STEP_NS, Truth, bootstrap_of, world

from bars.study import RankingSettings
from probe.beside import rank_by_own_predictor


class TrueModel(Truth):
    """The world's dynamics in steps of five rows; from the anchor alone it forgets which way joints turn."""

    history_rows, step_rows = 11, 5

    def why_no_prediction(self, actions: int, row_s: float) -> str:
        return "" if (actions, row_s) == (3, STEP_NS / 1e9) else "other rows"

    def predict(
        self, history: np.ndarray, past: np.ndarray, chunks: np.ndarray, rollout: str = "history"
    ) -> np.ndarray:
        assert history.shape[1] == 11 and chunks.shape[2] == 10
        found = super().predict(history, past, chunks)
        return found if rollout == "history" else -found


def test_it_is_asked_at_whole_steps_beside_ridge_on_the_same_anchors() -> None:
    train, evaluate = world(12, 120, 0), world(10, 120, 1, first=12)
    settings = RankingSettings(candidates=8, horizon=8)
    seed = np.random.SeedSequence(0)
    found = rank_by_own_predictor("W1", TrueModel(), train, evaluate, settings, bootstrap_of(evaluate), seed)
    value = {path.removeprefix("W1.g1b."): one.value for path, one in found.estimates.items()}
    assert set(value) == {
        f"{name}.{metric}" for name in ("own", "own_anchor", "own_ridge") for metric in ("top1", "mrr")
    }
    assert value["own.top1"] == pytest.approx(value["own_ridge.top1"], abs=0.05) and value["own.top1"] > 0.5
    assert value["own_anchor.top1"] < 0.2
    notes = {one.path.removeprefix("W1.g1b."): one.note for one in found.measurements}
    assert "H = 10 rows (0.50 s), predictor the encoder's own, rollout from history" in notes["own.top1"]
    assert "rollout from anchor" in notes["own_anchor.top1"] and "predictor ridge" in notes["own_ridge.top1"]
    assert len({one.n_rows for one in found.measurements}) == 1  # the same anchors


def test_where_it_cannot_predict_the_reason_stands_there() -> None:
    train, evaluate = world(3, 60, 0), world(3, 60, 1, first=3)
    slower = [
        type(rows)(rows.latents, rows.joints, rows.actions, 2 * rows.time_ns, rows.episode)
        for rows in (train, evaluate)
    ]
    found = rank_by_own_predictor(
        "W1", TrueModel(), *slower, RankingSettings(), bootstrap_of(evaluate), np.random.SeedSequence(0)
    )
    (one,) = found.measurements
    assert (one.path, one.value, one.testable, one.note) == ("W1.g1b.own.top1", None, False, "other rows")
