"""Studies: claims and their bars, frozen before any latent exists, judged afterwards, verifiable for ever.

A study is a folder with a study.yaml (`Study`), a chain of dated events (`Ledger`) and a results.json
(`Results`). `register` freezes it, `check_frozen` finds what has changed since, `judge_study` turns
measurements into a verdict, and `verify_study` recomputes all of it from the bytes on another machine.
The room imports nothing else of ours: a sceptic can run it without torch, HDF5 or a robot.
"""

from bars.additions import bind_data, bind_trained, record_extracted
from bars.bar import Bar, Comparison, Difference, Equals, SameOrder, bar_paths, parse_bar
from bars.binding import Binding, DataFacts, FreezeFacts, latent_words, read_binding
from bars.bound import RecordingBytes, hash_recording
from bars.canonical import canonical_json
from bars.episodes import format_episodes, parse_episodes
from bars.errors import StudyError
from bars.files import sha256_file, write_whole
from bars.freeze import (
    Mismatch,
    check_frozen,
    is_registered,
    power_words,
    refuse_mismatches,
    register,
    supersede,
)
from bars.judging import FEWEST_EPISODES, BarResult, judge
from bars.ledger import Event, Ledger, verify_chain
from bars.measurement import Measurement, MeasurementPath, difference_path, part_names
from bars.results import DataResult, EncoderResult, Results
from bars.shipped import template, template_names
from bars.study import (
    BarEntry,
    Claim,
    Data,
    EncoderEntry,
    Paper,
    ProbeSettings,
    RankingSettings,
    Series,
    Study,
)
from bars.verdict import ClaimVerdict, StudyVerdict, judge_study
from bars.verify import VerifyLine, summarise, verified, verify_study

__all__ = [
    "Study", "Paper", "Series", "Data", "EncoderEntry", "ProbeSettings", "RankingSettings",
    "Claim", "BarEntry",
    "StudyError", "template", "template_names", "parse_episodes", "format_episodes",
    "Measurement", "MeasurementPath", "difference_path", "part_names",
    "Bar", "Comparison", "Difference", "SameOrder", "Equals", "parse_bar", "bar_paths",
    "judge", "BarResult", "FEWEST_EPISODES", "judge_study", "StudyVerdict", "ClaimVerdict",
    "Ledger", "Event", "verify_chain", "canonical_json", "sha256_file", "write_whole",
    "register", "supersede", "is_registered", "check_frozen", "refuse_mismatches", "Mismatch", "power_words",
    "DataFacts", "FreezeFacts", "Binding", "read_binding", "latent_words",
    "bind_data", "bind_trained", "record_extracted", "hash_recording", "RecordingBytes",
    "Results", "EncoderResult", "DataResult",
    "verify_study", "VerifyLine", "summarise", "verified",
]  # fmt: skip
