"""How many of the mistakes are caught, and how often a clean recording alarms, as a table.

    python tests/mutations/table.py --recordings 5 --clean 100 --results mutations.jsonl

Every mutation is made on each of some clean recordings; then all checks are run on other clean recordings:
demonstrations and walks, of several sizes, lengths and frame rates. What is done stands in the results, and
the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path += [str(REPOSITORY), str(Path(__file__).parent)]

from bench import REFERENCE_SEED, check_all, make_bench, simulate, small_encoder  # noqa: E402
from mutations import MUTATIONS, Mutation, alarms, caught_by  # noqa: E402

from hardware.recording import Recording  # noqa: E402
from probe.checks import look  # noqa: E402
from sim.record import MotionName  # noqa: E402

FIRST_RECORDING, FIRST_CLEAN = 1, 4_000_000  # seeds; that of the fast test is 0
LEVEL = 0.95
MOTIONS: tuple[MotionName, ...] = ("demos", "walk")


class Results:
    """Lines of JSON by their key; kept in a file where one is named."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path is not None and path.is_file() else []
        self.lines: dict[tuple[Any, ...], dict[str, Any]] = {
            tuple(line["key"]): line for line in map(json.loads, lines)
        }

    def add(self, key: tuple[Any, ...], **found: Any) -> None:
        self.lines[key] = {"key": key, **found}
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(self.lines[key]) + "\n")


def run_mutations(seeds: Sequence[int], results: Results) -> None:
    for seed in seeds:
        todo = [one for one in MUTATIONS if ("mutation", one.layer, one.name, seed) not in results.lines]
        if not todo:
            continue
        with tempfile.TemporaryDirectory() as folder:
            bench = make_bench(Path(folder), seed)
            for number, mutation in enumerate(todo, start=1):
                with tempfile.TemporaryDirectory() as spoiled:
                    checks = mutation.run(bench, Path(spoiled), np.random.default_rng(seed))
                results.add(
                    ("mutation", mutation.layer, mutation.name, seed),
                    caught=caught_by(mutation, checks, bench.clean),
                    alarms=alarms(checks, bench.clean),
                )
                progress(f"recording {seed}: {number} of {len(todo)} mutations")


def clean_settings(number: int) -> dict[str, Any]:
    """A clean recording of its own for each number: motion, size, length and rate all vary."""
    return {
        "motion": MOTIONS[number % 2],
        "episodes": 6 + number % 3,
        "image_size": (48, 32, 64)[number // 2 % 3],
        "seconds": (8.0, 9.0, 10.0)[number // 4 % 3],
        "fps": (10.0, 15.0, 12.5, 20.0)[number // 3 % 4],
    }


def run_clean(count: int, results: Results) -> None:
    todo = [number for number in range(count) if ("clean", number) not in results.lines]
    if not todo:
        return
    with tempfile.TemporaryDirectory() as folder:
        references = {
            motion: simulate(Path(folder) / motion, REFERENCE_SEED, motion=motion) for motion in MOTIONS
        }
        for done, number in enumerate(todo, start=1):
            started = time.monotonic()
            found = check_clean(number, references)
            results.add(("clean", number), **clean_settings(number), alarms=found)
            told = f", ALARM {found}" if found else ""
            progress(f"clean {done} of {len(todo)} ({time.monotonic() - started:.0f} s){told}")


def check_clean(number: int, references: Mapping[str, Recording]) -> dict[str, str]:
    """Messages of the checks that warn or fail, by name. References are by motion: every third recording gets
    the one of the other motion."""
    settings = clean_settings(number)
    reference = references[MOTIONS[(number + (number % 3 == 0)) % 2]]
    with tempfile.TemporaryDirectory() as folder:
        recording = simulate(Path(folder) / "clean", FIRST_CLEAN + number, **settings)
        episodes = recording.episode_indices
        train, evaluate = episodes[:-3], episodes[-3:]
        encoder = small_encoder(recording, train)
        latents = Path(folder) / "latents"
        checks = check_all(recording, reference, look(recording), encoder, latents, train, evaluate)
    return {check.name: check.message for check in checks if check.alarm}


def progress(told: str) -> None:
    print(told, file=sys.stderr, flush=True)


def print_table(seeds: Sequence[int], clean: int, results: Results) -> None:
    print(f"{'layer':10} {'mutation':26} {'exposed by':21} {'caught':>8}  by which check")
    counts: Counter[str] = Counter()
    for mutation in MUTATIONS:
        caught, line = row(mutation, seeds, results)
        counts[f"{mutation.exposed_by}: caught"] += caught
        counts[f"{mutation.exposed_by}: tried"] += len(seeds)
        print(line)
    for label in dict.fromkeys(mutation.exposed_by for mutation in MUTATIONS):
        print(f"{label}: {counts[f'{label}: caught']} of {counts[f'{label}: tried']} caught")
    if clean:
        print_false_alarms([results.lines["clean", number] for number in range(clean)])


def row(mutation: Mutation, seeds: Sequence[int], results: Results) -> tuple[int, str]:
    found = [results.lines["mutation", mutation.layer, mutation.name, seed]["caught"] for seed in seeds]
    caught = sum(map(bool, found))
    by = ", ".join(f"{name} {count}" for name, count in Counter(n for names in found for n in names).items())
    label = f"{mutation.layer:10} {mutation.name:26} {mutation.exposed_by:21}"
    return caught, f"{label} {caught:>3} of {len(seeds)}  {by}"


def print_false_alarms(lines: Sequence[dict[str, Any]]) -> None:
    """With no alarm in n the rate is below 1 - 0.05^(1/n), about 3 / n; else Clopper and Pearson's bound."""
    from scipy.stats import beta

    n, wrong = len(lines), [line for line in lines if line["alarms"]]
    bound = float(beta.ppf(LEVEL, len(wrong) + 1, n - len(wrong))) if len(wrong) < n else 1.0
    print(
        f"false alarms: {len(wrong)} of {n} clean recordings (rate below {bound:.1%}, {LEVEL:.0%} one-sided)"
    )
    for line in wrong:
        for name, message in line["alarms"].items():
            print(f"  {line['key'][1]} ({line['motion']}, {line['image_size']} px): {name}: {message}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recordings", type=int, default=5, help="recordings to make every mistake on")
    parser.add_argument("--clean", type=int, default=100, help="clean recordings to look for false alarms in")
    parser.add_argument("--results", type=Path, help="file of what is done, to go on from")
    asked = parser.parse_args()
    results = Results(asked.results)
    seeds = range(FIRST_RECORDING, FIRST_RECORDING + asked.recordings)
    run_mutations(seeds, results)
    run_clean(asked.clean, results)
    print_table(seeds, asked.clean, results)


if __name__ == "__main__":
    main()
