"""Everything that a study measures on extracted latents: each encoder by itself, then encoders against each
other.

Every random draw comes from the study's seed by a stream of its own, so that a setting that is changed, or an
encoder that is added, moves no other number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from bars import DataResult, Measurement
from bars.study import Study
from encoders import Encoder, EpisodeLatents
from encoders.lewm_encoder import LewmEncoder
from hardware.errors import InputError
from hardware.recording import Progress
from probe.beside import Beside, beside_probe, not_ranked, rank, rank_by_own_predictor
from probe.bootstrap import Bootstrap, Estimate
from probe.chunks import timed_rows
from probe.facts import DataEntry, evaluation_std
from probe.measure import Probed, differences, probe_rows
from probe.rows import Rows
from probe.seed_means import mean_over_seeds
from probe.similarity import linear_cka
from probe.statistics import backlash_ceiling
from probe.widths import probe_at_width

_BOOTSTRAP, _NULL, _BESIDE, _RANKING, _REFIT = 1, 2, 4, 5, 6  # streams of the study's seed; 3 is the freeze's


@dataclass(frozen=True, eq=False)
class Extracted:
    """Latents of one encoder on one data entry: rows to probe, and the episodes they come from."""

    train: Rows
    evaluate: Rows
    train_episodes: Sequence[EpisodeLatents]
    evaluate_episodes: Sequence[EpisodeLatents]

    @classmethod
    def of(
        cls, train: Sequence[EpisodeLatents], evaluate: Sequence[EpisodeLatents], entry: DataEntry
    ) -> Extracted:
        """From the episodes of the split of `entry`, in its order."""
        return cls(
            _rows(train, entry.train, entry.columns),
            _rows(evaluate, entry.evaluate, entry.columns),
            train,
            evaluate,
        )


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured.

    Attributes
    ----------
    probed : by (encoder, data entry).
    measurements : of every encoder and of the differences between them.
    data : what each data entry gave.
    tables : `learning_curves` (by source), `similarity` and `equal_width` (one row a pair of encoders).
    """

    probed: Mapping[tuple[str, str], Probed]
    measurements: list[Measurement]
    data: dict[str, DataResult]
    tables: dict[str, Any]


def measure_study(
    study: Study,
    entries: Mapping[str, DataEntry],
    encoders: Mapping[str, Encoder],
    latents: Mapping[tuple[str, str], Extracted],
    progress: Progress | None = None,
) -> Measured:
    """Measure every encoder on every data entry on which it was extracted, then compare them.

    `encoders` are asked for nothing but the predictions of those that are world models.

    Raises
    ------
    InputError : latents or joints that cannot be probed; encoder and data entry are named.
    """
    rows = _equalled(study, latents)
    probed: dict[tuple[str, str], Probed] = {}
    beside: dict[tuple[str, str], list[Beside]] = {}
    results: dict[str, DataResult] = {}
    pairs: dict[str, list[dict[str, Any]]] = {"similarity": [], "equal_width": []}
    done = 0
    for number, (data, entry) in enumerate(entries.items()):
        std, testable = evaluation_std(entry, study.probe.min_std)
        radians = np.array([unit == "rad" for unit in entry.units])
        bootstrap = _bootstrap(study, entry, number)
        training = Bootstrap.draw(
            np.unique(np.asarray(entry.train)),
            np.random.default_rng(_stream(study, _REFIT, number)),
            resamples=study.probe.refits,
            level=study.probe.level,
            name=f"training episodes of {data}",
        )
        here = [name for name in study.networks if (name, data) in rows]
        for column, name in enumerate(study.networks):
            if name not in here:
                continue
            key, source = (name, data), study.source(name, data)
            if progress is not None:
                progress(done, len(rows), f"probing {source}")
            train, evaluate = rows[key]
            try:
                probed[key] = probe_rows(
                    source,
                    train,
                    evaluate,
                    entry.joints,
                    testable,
                    study.probe,
                    bootstrap,
                    training,
                    np.random.default_rng(_stream(study, _NULL, number, column)),
                    weighted=radians,
                )
                beside[key] = [
                    beside_probe(
                        source,
                        probed[key].fit,
                        train,
                        evaluate,
                        entry.joints,
                        testable,
                        study.probe,
                        bootstrap,
                        _stream(study, _BESIDE, number, column),
                        radians,
                    ),
                    *_ranked(study, entry, source, encoders[name], latents[key], bootstrap, number),
                ]
            except ValueError as error:  # the arrays' own complaint, without knowing whose they are
                raise InputError(f"{study.name}: probe of {source}", str(error)) from None
            done += 1
            if progress is not None:
                progress(done, len(rows), f"probing {source}")
        of_data = {name: rows[name, data] for name in here}
        pairs["similarity"] += _similarities(study, data, of_data, bootstrap)
        pairs["equal_width"] += _equal_widths(study, data, of_data, testable, bootstrap)
        results[data] = _data_result(study, entry, next(iter(of_data.values()), None), std, testable, radians)
    found = {one.path: one for key in probed for one in probed[key].measurements}
    found |= {one.path: one for parts in beside.values() for part in parts for one in part.measurements}
    estimates = {path: one for each in probed.values() for path, one in each.estimates.items()}
    estimates |= {p: one for parts in beside.values() for part in parts for p, one in part.estimates.items()}
    curves = {study.source(*key): part.curve for key in beside for part in beside[key] if part.curve}
    compared: list[tuple[str, str]] = []  # encoders, as the study writes them, on data
    for data in entries:
        for name in study.encoders:
            networks = study.seeds_of(name)
            if not all((one, data) in probed for one in networks or [name]):
                continue
            compared.append((name, data))
            if networks:
                source, sources = study.source(name, data), [study.source(one, data) for one in networks]
                means = mean_over_seeds(source, sources, found, estimates, curves)
                found |= {one.path: one for one in means.measurements}
                estimates |= means.estimates
                curves = {key: curve for key, curve in curves.items() if key not in sources}
                curves |= {source: means.curve} if means.curve else {}
    measurements = list(found.values())
    measurements += _differences(study, compared, estimates, {m.path: m.n_rows for m in measurements})
    return Measured(probed, measurements, results, {"learning_curves": curves, **pairs})


def _rows(read: Sequence[EpisodeLatents], episodes: Sequence[int], columns: Sequence[int]) -> Rows:
    return Rows(
        np.concatenate([one.latent for one in read]),
        np.concatenate([one.position for one in read])[:, list(columns)],
        np.repeat(np.asarray(episodes), [len(one) for one in read]),
    )


def _equalled(
    study: Study, latents: Mapping[tuple[str, str], Extracted]
) -> dict[tuple[str, str], tuple[Rows, Rows]]:
    """Rows to train and evaluate on; equally many to train on everywhere, where the study says so."""
    found = {key: (one.train, one.evaluate) for key, one in latents.items()}
    if study.probe.equal_rows and found:
        least = min(len(train.y) for train, _ in found.values())
        found = {key: (train.thinned(least), evaluate) for key, (train, evaluate) in found.items()}
    return found


def _stream(study: Study, *key: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(study.seed, spawn_key=key)


def _bootstrap(study: Study, entry: DataEntry, number: int) -> Bootstrap:
    return Bootstrap.draw(
        np.unique(np.asarray(entry.evaluate)),
        np.random.default_rng(_stream(study, _BOOTSTRAP, number)),
        resamples=study.probe.resamples,
        level=study.probe.level,
        name=entry.name,
        interval=study.probe.interval,
    )


def _ranked(
    study: Study,
    entry: DataEntry,
    source: str,
    encoder: Encoder,
    latents: Extracted,
    bootstrap: Bootstrap,
    number: int,
) -> list[Beside]:
    """G1b by ridge and, of a world model, by its own predictor; or why there is none."""
    if len(entry.train) < 2 or len(entry.evaluate) < 2:
        return [not_ranked(source, "needs two training and two evaluation episodes")]
    try:
        train, evaluate = (
            timed_rows(read, [entry.recording.episode(index) for index in episodes], entry.columns)
            for read, episodes in (
                (latents.train_episodes, entry.train),
                (latents.evaluate_episodes, entry.evaluate),
            )
        )
    except InputError as error:
        return [not_ranked(source, error.problem)]
    asked = study.ranking, bootstrap, _stream(study, _RANKING, number)
    found = [rank(source, train, evaluate, *asked)]
    if isinstance(encoder, LewmEncoder):
        found.append(rank_by_own_predictor(source, encoder, train, evaluate, *asked))
    return found


def _similarities(
    study: Study, data: str, rows: Mapping[str, tuple[Rows, Rows]], bootstrap: Bootstrap
) -> list[dict[str, Any]]:
    """Debiased linear CKA of every pair of encoders, and of an encoder's seeds, on the evaluation rows."""
    if len(bootstrap.episodes) < 4:  # Song's estimator takes four different episodes at a time
        return []
    found = []
    first = {(study.seeds_of(name) or [name])[0] for name in study.encoders}  # stands for its seeds
    seeds = {one: name for name in study.encoders for one in study.seeds_of(name)}
    for one, other in combinations(rows, 2):
        if not ({one, other} <= first or (one in seeds and seeds[one] == seeds.get(other))):
            continue  # the first seed stands for an encoder; its seeds are compared with each other
        (_, a), (_, b) = rows[one], rows[other]
        if len(a.x) != len(b.x) or not np.array_equal(a.y, b.y):
            continue  # other views leave other rows
        cka = linear_cka(a.x, b.x, a.clusters, bootstrap)
        found.append(
            {
                "pair": [study.source(one, data), study.source(other, data)],
                "cka_by_episode": cka.by_episode.value,
                "low": cka.by_episode.low,
                "high": cka.by_episode.high,
                "cka_by_row": cka.by_row,
                "note": cka.by_episode.note,
            }
        )
    return found


def _equal_widths(
    study: Study,
    data: str,
    rows: Mapping[str, tuple[Rows, Rows]],
    testable: np.ndarray,
    bootstrap: Bootstrap,
) -> list[dict[str, Any]]:
    """The wider of two models, probed at the narrower one's width."""
    found = []
    first = [(study.seeds_of(name) or [name])[0] for name in study.encoders]  # stands for its seeds
    models = [name for name in first if name in rows and study.networks[name].role == "model"]
    for one, other in combinations(models, 2):
        narrow, wide = sorted((one, other), key=lambda name: rows[name][0].x.shape[1])
        width = rows[narrow][0].x.shape[1]
        train, evaluate = rows[wide]
        if train.x.shape[1] == width or width >= len(train.x) or not testable.any():
            continue
        narrowed = probe_at_width(
            width,
            train.x,
            train.y,
            train.clusters,
            evaluate.x,
            evaluate.y,
            evaluate.clusters,
            alphas=study.probe.alphas,
            testable=testable,
            bootstrap=bootstrap,
            folds=study.probe.folds,
        )
        mean = narrowed.scores.mean
        found.append(
            {
                "encoder": study.source(wide, data),
                "at_the_width_of": study.source(narrow, data),
                "width": width,
                "r2_mean": mean.value,
                "low": mean.low,
                "high": mean.high,
                "variance_kept": narrowed.projection.explained,
            }
        )
    return found


def _data_result(
    study: Study,
    entry: DataEntry,
    rows: tuple[Rows, Rows] | None,
    std: np.ndarray,
    testable: np.ndarray,
    radians: np.ndarray,
) -> DataResult:
    ceiling = np.where(radians, backlash_ceiling(std), np.nan)
    return DataResult.model_validate(
        dict(
            recording=study.data[entry.name].recording,
            train_rows=0 if rows is None else len(rows[0].y),
            evaluate_rows=0 if rows is None else len(rows[1].y),
            train_episodes=len(entry.train),
            evaluate_episodes=len(entry.evaluate),
            joints=list(entry.joints),
            untestable={joint: float(std[i]) for i, joint in enumerate(entry.joints) if not testable[i]},
            evaluate_std={joint: float(std[i]) for i, joint in enumerate(entry.joints)},
            train_std={} if rows is None else dict(zip(entry.joints, rows[0].y.std(axis=0).tolist())),
            ceiling={joint: float(ceiling[i]) for i, joint in enumerate(entry.joints)},
            units=dict(zip(entry.joints, entry.units)),
            views=list(entry.views),
            manifest_sha256=entry.recording.manifest_sha256,
        )
    )


def _differences(
    study: Study,
    compared: Sequence[tuple[str, str]],
    estimates: Mapping[str, Estimate],
    rows: Mapping[str, int],
) -> list[Measurement]:
    """The differences that bars name, and each model's from every control and model on the same data."""
    wanted: list[tuple[str, str]] = [pair for entry in study.bars for pair in entry.parsed.differences()]
    for name, data in compared:
        for other, where in compared:
            if where == data and other != name and study.encoders[name].role == "model":
                for metric in ("r2.mean", "anisotropy", "g1b.top1"):
                    wanted.append(
                        (f"{study.source(name, data)}.{metric}", f"{study.source(other, data)}.{metric}")
                    )
    return differences(wanted, estimates, rows)
