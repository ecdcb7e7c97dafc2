from __future__ import annotations

import hashlib
import json
import math
import struct
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bars import StudyError, canonical_json
from bars.canonical import read_json

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_canonical_json_reads_back_to_the_same_bits(value):
    content = canonical_json(value)
    assert canonical_json(read_json(content, "x")) == content
    assert read_json(content, "x") == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_keep_every_bit(number):
    assert struct.pack(">d", read_json(canonical_json(number), "x")) == struct.pack(">d", number)


def test_the_form_is_pinned():
    value = {"b": [1, 2.0, -0.0, 1e-7, 1e22, True, None], "a": 'é\n"\\ €', "Z": {}}
    expected = '{"Z":{},"a":"é\\n\\"\\\\ €","b":[1,2.0,-0.0,1e-07,1e+22,true,null]}'.encode()
    assert canonical_json(value) == expected
    assert (
        hashlib.sha256(expected).hexdigest()
        == "8b80c864a37995c98dbe257b3c4019d7792c7314e2d6bdb63d2fa6d38fee6db2"
    )


@given(st.dictionaries(texts, st.integers(), max_size=6), st.randoms())
def test_the_order_of_keys_does_not_matter(value, random):
    keys = list(value)
    random.shuffle(keys)
    assert canonical_json({key: value[key] for key in keys}) == canonical_json(value)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"a": [1, math.nan]}, "value.a[1]: is nan, which JSON cannot carry - store null instead"),
        (-math.inf, "value: is -inf, which JSON cannot carry - store null instead"),
        (np.float64("nan"), "value: is nan, which JSON cannot carry - store null instead"),
        ({1: "a"}, "value: has the key 1, which is not text"),
        ({"a": np.float32(1)}, "value.a: is of type float32, which JSON cannot carry"),
        ({"a": np.int64(1)}, "value.a: is of type int64, which JSON cannot carry"),
        ({"a": np.longdouble(1) / 3}, "value.a: is of type longdouble, which JSON cannot carry"),
        ({"a": Decimal("0.1")}, "value.a: is of type Decimal, which JSON cannot carry"),
        ({"a": {1, 2}}, "value.a: is of type set, which JSON cannot carry"),
        ({"a": b"x"}, "value.a: is of type bytes, which JSON cannot carry"),
        ("\ud800", "value: holds a lone surrogate, which UTF-8 cannot carry"),
    ],
)
def test_what_json_cannot_carry_is_named(value, told):
    with pytest.raises(StudyError) as error:
        canonical_json(value)
    assert str(error.value) == told


def test_depth_is_bounded():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(StudyError, match=r"^value: is nested too deeply for JSON$"):
        canonical_json(deep)
    with pytest.raises(StudyError, match=r"^line 3: is nested too deeply to be JSON of ours$"):
        read_json("[" * 100_000, "line 3")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "NaN",
        "[Infinity]",
        "-Infinity",
        "1e999",
        '{"a":1,"a":2}',
        '{"a":{"b":1,"b":1}}',
        "1 2",
        b'"\xff"',
        "9" * 5000,
    ],
)
def test_what_is_not_strict_json_is_refused(text):
    with pytest.raises(StudyError, match=r"^line 3: is not valid JSON: "):
        read_json(text, "line 3")


@given(st.text(max_size=30) | st.binary(max_size=30))
def test_reading_gives_a_value_or_a_study_error(text):
    try:
        assert json.dumps(read_json(text, "x")) is not None
    except StudyError:
        pass
