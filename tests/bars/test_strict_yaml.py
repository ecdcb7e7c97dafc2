# ruff: noqa: E501 - messages stand whole, as they are read
from __future__ import annotations

import pytest

from bars import StudyError
from bars.strict_yaml import read_yaml


def read(tmp_path, text):
    path = tmp_path / "study.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_yaml(path)


def test_scalars_have_one_meaning(tmp_path):
    text = """
on: demos
yes: no
small: 1e-3
octal: 010
base: [0x10, 0o10]
date: 2026-10-29
time: 12:30
nan: .nan
infinite: .inf
numbers: [1, -2.5, +3, 1., .5, 1_000]
quoted: ["1", '2', "true"]
nothing: [~, null, ]
truth: [true, False]
block: |
  1
"""
    assert read(tmp_path, text).data == {
        "on": "demos",
        "yes": "no",
        "small": 0.001,
        "octal": 10,
        "base": [16, 8],
        "date": "2026-10-29",
        "time": "12:30",
        "nan": ".nan",
        "infinite": ".inf",
        "numbers": [1, -2.5, 3, 1.0, 0.5, "1_000"],
        "quoted": ["1", "2", "true"],
        "nothing": [None, None],
        "truth": [True, False],
        "block": "1\n",
    }


def test_every_field_knows_its_line(tmp_path):
    document = read(tmp_path, "a: 1\nb:\n  - c: 2\n    d: 3\n")
    assert document.lines == {(): 1, ("a",): 1, ("b",): 2, ("b", 0): 3, ("b", 0, "c"): 3, ("b", 0, "d"): 4}
    assert document.where(("b", 0, "d")) == f"{tmp_path}/study.yaml, line 4, b[0].d"
    assert document.where(("b", 0, "gone")) == f"{tmp_path}/study.yaml, line 3, b[0].gone"


BILLION = "a: &a [x, x]\n" + "\n".join(f"{c}: &{c} [*{p}, *{p}]" for p, c in zip("abcdefgh", "bcdefghi"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BILLION, ", line 2: the alias *a is not allowed - write the value out"),
        ("a: !!python/object/apply:os.system [ls]", ", line 1: the tag tag:yaml.org,2002:python/object/apply:os.system is not allowed - write plain values"),
        ("a: !!float 1", ", line 1: the tag tag:yaml.org,2002:float is not allowed - write plain values"),
        ("a: 1\nb: {c: 1,\n c: 2}", ", line 3: the key b.c is given twice - keep one of them"),
        ("<<: {a: 1}", ", line 1: the merge key << is not allowed - write the values out"),
        ("1: a", ", line 1: the key '1' is not text - put it in quotes"),
        ("true: a", ", line 1: the key 'true' is not text - put it in quotes"),
        ("? [a]\n: b", ", line 1: the key that is a list or mapping is not text - put it in quotes"),
        ("a: " + "[" * 30 + "]" * 30, ", line 1: is nested more than 24 levels deep"),
        ("a: " + "[" * 100_000, ", line 1: is nested more than 24 levels deep"),
        ("a: " + "9" * 5000, f", line 1: the number {'9' * 40} is too large"),
        ("a: 1e999", ", line 1: the number 1e999 is too large"),
        ("a: [1", ", line 1: is not valid YAML: expected ',' or ']', but got '<stream end>' - check its indentation and quotes"),
        ("a: b: c", ", line 1: is not valid YAML: mapping values are not allowed here - check its indentation and quotes"),
        ("a: 1\n---\nb: 2\n", ", line 2: is not valid YAML: but found another document - check its indentation and quotes"),
        ("- a", ": holds no mapping of keys to values - start it with `schema: ...`"),
        ("", ": holds no mapping of keys to values - start it with `schema: ...`"),
        (b"a: \xff", ": is not UTF-8 text (byte 3) - save it as UTF-8"),
        ("a: \x00", ": is not valid YAML: unacceptable character #x0000: special characters are not allowed"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named(tmp_path, text, told):
    with pytest.raises(StudyError) as error:
        read(tmp_path, text)
    assert str(error.value) == f"{tmp_path}/study.yaml{told}"


def test_size_is_bounded(tmp_path):
    with pytest.raises(StudyError) as error:
        read(tmp_path, "a: " + "x" * (1 << 20))
    assert (
        str(error.value)
        == f"{tmp_path}/study.yaml: is larger than 1048576 bytes - it is not read any further"
    )


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(StudyError) as error:
        read_yaml(tmp_path / "study.yaml")
    assert str(error.value) == (
        f"{tmp_path}/study.yaml: cannot be read: No such file or directory - a study is a folder that holds study.yaml"
    )
