from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bars import Measurement, MeasurementPath, StudyError, part_names

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True)
parts = st.from_regex(r"[A-Za-z0-9_]{1,6}(\.[A-Za-z0-9_]{1,6}){0,2}", fullmatch=True)
encoders = names | st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,3}@[A-Za-z0-9][A-Za-z0-9_-]{0,5}", fullmatch=True)
paths = st.builds(MeasurementPath, encoders, st.none() | names, names, st.none() | parts)


@given(paths)
def test_a_path_is_what_its_text_parses_to(path):
    assert MeasurementPath.parse(str(path)) == path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("W1.r2.mean", MeasurementPath("W1", None, "r2", "mean")),
        ("W1/walk.r2.left.shoulder_pan", MeasurementPath("W1", "walk", "r2", "left.shoulder_pan")),
        ("W1.anisotropy", MeasurementPath("W1", None, "anisotropy", None)),
    ],
)
def test_the_parts_of_a_path(text, path):
    assert MeasurementPath.parse(text) == path
    assert path.source == text.split(".")[0]


@pytest.mark.parametrize(
    "text", ["W1", "1W.r2", "W1/.r2.mean", "W1.r2.", "W1 .r2", "W1.r2.mean\n", "Wé.r2", "", "W1/a/b.r2"]
)
def test_what_is_no_path_is_said(text):
    with pytest.raises(StudyError) as error:
        MeasurementPath.parse(text)
    assert str(error.value) == (
        f"measurement path {text!r}: is not ENCODER[/DATA].METRIC[.PART] - "
        "write it like W1.r2.mean, W1.r2.wrist_flex, W1.anisotropy or W1/walk.r2.mean"
    )


def test_joint_names_become_parts():
    assert part_names(["pan", "shoulder pan.pos", "mean", "a..b", "elbow-1"]) == {
        "pan": "pan",
        "shoulder pan.pos": "shoulder_pan.pos",
        "mean": "mean_",
        "a..b": "a._.b",
        "elbow-1": "elbow_1",
    }


@given(st.lists(st.text(min_size=1, max_size=8), max_size=4))
def test_every_part_can_be_named_in_a_path(joints):
    try:
        parts_of = part_names(joints)
    except StudyError:
        return
    for part in parts_of.values():
        assert MeasurementPath.parse(f"W1.r2.{part}").part == part


def test_joints_that_would_share_a_part_are_refused():
    with pytest.raises(StudyError) as error:
        part_names(["a b", "a-b"])
    assert str(error.value) == (
        "joints 'a b' and 'a-b': would both be measured as 'a_b' - rename one of them in recording.yaml"
    )


numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
measurements = st.builds(
    Measurement,
    path=paths.map(str),
    value=numbers,
    unit=st.sampled_from(["", "rad"]),
    n_rows=st.integers(0, 10**9),
    n_episodes=st.integers(0, 1000),
    low=numbers,
    high=numbers,
    level=st.floats(0.5, 0.99),
    method=st.text(max_size=20),
    testable=st.booleans(),
    note=st.text(max_size=20),
)


@given(measurements)
def test_a_measurement_survives_json(measurement):
    assert Measurement.from_json(json.loads(json.dumps(measurement.to_json()))) == measurement


def test_numpy_goes_in_and_plain_json_comes_out():
    given: dict[str, Any] = {"value": np.float32(0.5), "n_rows": np.int64(3), "testable": np.bool_(True)}
    record = Measurement("W1.r2.mean", **given, low=math.nan, high=math.inf).to_json()
    assert json.dumps(record) == (
        '{"path": "W1.r2.mean", "value": 0.5, "unit": "", "n_rows": 3, "n_episodes": 0, "low": null, '
        '"high": null, "level": 0.95, "method": "", "testable": true, "note": ""}'
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"value": "0.5"}, "measurements[3]: field 'value' holds '0.5'"),
        ({"value": True}, "measurements[3]: field 'value' holds True"),
        ({"n_rows": -1}, "measurements[3]: field 'n_rows' holds -1"),
        ({"testable": 1}, "measurements[3]: field 'testable' holds 1"),
        ({"sigma": 1}, "measurements[3]: has the unknown field 'sigma'"),
    ],
)
def test_a_wrong_field_is_named(change, told):
    with pytest.raises(StudyError) as error:
        Measurement.from_json({**Measurement("W1.r2.mean", 0.5).to_json(), **change}, "measurements[3]")
    assert str(error.value) == told


def test_a_missing_field_is_named():
    record = Measurement("W1.r2.mean", 0.5).to_json()
    del record["note"]
    with pytest.raises(StudyError, match=r"^measurement: lacks 'note'$"):
        Measurement.from_json(record)
    with pytest.raises(StudyError, match=r"^measurement: is not a measurement but list$"):
        Measurement.from_json([])
