from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest

from bars import DataResult, EncoderResult, Measurement, Results, StudyError

GOLDEN = Path(__file__).parents[1] / "golden" / "results.json"


def results(**changes):
    values = {
        "study": "small",
        "study_sha256": "a" * 64,
        "ledger_head": "b" * 64,
        "exploratory": False,
        "made_at": "2026-10-29T12:00:00Z",
        "measurements": [
            Measurement("W1.r2.mean", 0.565, "", 8447, 25, low=0.1 + 0.2, high=0.61, method="bootstrap"),
            Measurement("W1.r2.lift", math.nan, testable=False, note="std 0.004 rad"),
        ],
        "encoders": {
            "W1": EncoderResult(kind="lewm", width=192, fingerprint="c" * 64, alpha={"demos": 1e3}),
            "dino": EncoderResult(kind="transformers", unavailable="its weights are not in the cache"),
        },
        "data": {
            "demos": DataResult(
                train_rows=17724,
                joints=["pan", "lift"],
                untestable={"lift": 0.004},
                ceiling={"pan": math.inf},
            )
        },
        "checks": [{"name": "counts", "state": "pass", "message": "é"}],
        "tables": {"walk against demos": np.array([[0.1, np.nan], [0.3, 0.4]])},
        "provenance": {"rows": np.int64(3), "seconds": np.float32(0.5)},
    }
    return Results(**{**values, **changes})


def test_golden_file(tmp_path):
    sha = results().save(tmp_path)
    content = (tmp_path / "results.json").read_bytes()
    assert sha == hashlib.sha256(content).hexdigest()
    assert content.decode() == GOLDEN.read_text("utf-8")


def test_what_is_read_is_what_was_written(tmp_path):
    results().save(tmp_path / "results.json")
    read = Results.load(tmp_path)
    assert read == Results.load(tmp_path / "results.json")
    assert read.to_bytes() == results().to_bytes()
    assert read.by_path["W1.r2.mean"].low == 0.1 + 0.2  # every bit
    assert read.by_path["W1.r2.lift"].value is None
    assert read.unavailable == {"dino": "its weights are not in the cache"}
    assert read.tables == {"walk against demos": [[0.1, None], [0.3, 0.4]]}


def test_keys_stand_in_declared_order():
    record = json.loads(results().to_bytes())
    assert list(record) == [
        "schema",
        "study",
        "study_sha256",
        "ledger_head",
        "exploratory",
        "made_at",
        "measurements",
        "encoders",
        "data",
        "checks",
        "tables",
        "provenance",
    ]
    assert list(record["encoders"]) == ["W1", "dino"]


def test_further_facts_stand_beside_the_declared_ones(tmp_path):
    results(encoders={"W1": EncoderResult(**{"kind": "cnn", "seconds_to_train": np.float64(12.5)})}).save(
        tmp_path
    )
    assert Results.load(tmp_path).encoders["W1"].model_extra == {"seconds_to_train": 12.5}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema": "jointprobe-results/2"},
         "has the schema 'jointprobe-results/2', not jointprobe-results/1 - probe again with this version"),
        ({"study": 1}, "study: Input should be a valid string"),
        ({"by": "me"}, "by: Extra inputs are not permitted"),
        ({"measurements": [{"path": "W1.r2.mean"}]}, "measurements: measurements[0]: lacks 'high'"),
        ({"measurements": 3}, "measurements: Input should be a valid list"),
        ({"measurements": [Measurement("W1.r2.mean", 0.5).to_json()] * 2},
         "measurements: W1.r2.mean is measured twice"),
        ({"encoders": {"W1": {"width": 3}}}, "encoders.W1.kind: Field required"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_named(tmp_path, change, told):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({**json.loads(results().to_bytes()), **change}))
    with pytest.raises(StudyError) as error:
        Results.load(tmp_path)
    assert str(error.value) == f"{path}: {told}"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"schema": NaN}'])
def test_a_file_that_is_no_results(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(StudyError, match=r"results\.json: (is not valid JSON|has the schema None)"):
        Results.load(tmp_path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(
        StudyError,
        match=r"results\.json: cannot be read: No such file .* - jointprobe probe STUDY writes it$",
    ):
        Results.load(tmp_path)


def test_what_json_cannot_carry_is_refused(tmp_path):
    with pytest.raises(StudyError, match=r"is of type set, which JSON cannot carry$"):
        results(provenance={"a": {1}}).save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    sha = results().save(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(StudyError, match="could not be written: No space left on device"):
        results(exploratory=True).save(tmp_path)
    assert hashlib.sha256((tmp_path / "results.json").read_bytes()).hexdigest() == sha
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]
