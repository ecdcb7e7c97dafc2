"""Every mistake of the registry is caught where its label says so, and nowhere else; the clean sets pass."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from bench import REFERENCE_SEED, make_bench, simulate
from mutations import MUTATIONS, Bench, Mutation, alarms, caught_by
from table import check_clean

from hardware.recording import Recording


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return make_bench(tmp_path_factory.mktemp("mutations"), seed=0)


@pytest.fixture(scope="session")
def other_bench(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return make_bench(tmp_path_factory.mktemp("mutations"), seed=1, reference=bench.reference)


def assert_as_labelled(mutation: Mutation, bench: Bench, folder: Path, seed: int = 0) -> None:
    checks = mutation.run(bench, folder, np.random.default_rng(seed))
    found = caught_by(mutation, checks, bench.clean)
    said = {check.name: check.message for check in checks if check.alarm}
    if mutation.exposed_by == "nothing":
        assert alarms(checks, bench.clean) == [], said
        return
    assert found, f"not caught: {mutation.mistake}; alarms: {said}"
    if mutation.exposed_by != "the set itself":
        assert set(alarms(checks, bench.clean)) == set(found), "the set itself shows it: correct the label"


def test_the_registry_is_whole() -> None:
    names = Counter(mutation.name for mutation in MUTATIONS)
    assert len(names) == len(MUTATIONS) >= 30
    assert {mutation.layer for mutation in MUTATIONS} == {"recording", "extraction", "split"}
    assert len({mutation.exposed_by for mutation in MUTATIONS}) == 4


def test_nothing_alarms_on_what_is_clean(bench: Bench) -> None:
    assert {name: state for name, state in bench.clean.items() if state in ("warn", "fail")} == {}
    assert {name for name, state in bench.clean.items() if state == "not testable"} == {
        "raw_ticks",  # the simulation has none
        "z: calibration step",  # 16 dimensions of an untrained network read no joint well enough
    }
    named = {pattern for mutation in MUTATIONS for pattern in mutation.named_by if "*" not in pattern}
    assert named <= set(bench.clean)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: f"{one.layer}: {one.name}")
def test_a_mutation_is_caught_as_labelled(mutation: Mutation, bench: Bench, tmp_path: Path) -> None:
    assert_as_labelled(mutation, bench, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: f"{one.layer}: {one.name}")
def test_another_recording_shows_the_same(mutation: Mutation, other_bench: Bench, tmp_path: Path) -> None:
    assert_as_labelled(mutation, other_bench, tmp_path, seed=1)


@pytest.fixture(scope="session")
def references(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    walk = simulate(tmp_path_factory.mktemp("mutations") / "walk", REFERENCE_SEED, motion="walk")
    return {"demos": bench.reference, "walk": walk}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(6))
def test_nothing_alarms_on_other_clean_recordings(number: int, references: dict[str, Recording]) -> None:
    assert check_clean(number, references) == {}
