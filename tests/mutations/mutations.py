"""The registry: mistakes that were made or nearly made with real recordings, each on purpose.

A mutation is applied to a clean simulated recording (`recording_mutations`), to the extraction of latents
from it (`extraction_mutations`), or to its split into training and evaluation (`split_mutations`). It is
labelled by what can expose it:

- "the set itself": a check of the recording, the latents or the split, with nothing else at hand;
- "a reference recording": only another, good recording of the same set-up shows it;
- "the declaration": only what somebody wrote down beforehand contradicts it;
- "nothing": no check can. A linear probe that is fitted anew absorbs every affine change of the joints, such
  as a calibration that is off in all episodes alike. Better said than passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch

from bench import Bench, Mutation
from extraction_mutations import EXTRACTION_MUTATIONS
from recording_mutations import RECORDING_MUTATIONS
from split_mutations import SPLIT_MUTATIONS

from hardware.checks import Check

MUTATIONS: tuple[Mutation, ...] = (*RECORDING_MUTATIONS, *EXTRACTION_MUTATIONS, *SPLIT_MUTATIONS)

__all__ = ["MUTATIONS", "Bench", "Mutation", "alarms", "caught_by"]


def alarms(checks: Sequence[Check], clean: Mapping[str, str]) -> list[str]:
    """Names of the checks that warn or fail although they did not on the clean recording."""
    quiet = [name for name, state in clean.items() if state in ("pass", "not testable")]
    return [check.name for check in checks if check.alarm and check.name in quiet]


def caught_by(mutation: Mutation, checks: Sequence[Check], clean: Mapping[str, str]) -> list[str]:
    """Those of the alarms that name the mistake: the mutation is caught where there is one."""
    found = alarms(checks, clean)
    return [name for name in found if any(fnmatch(name, pattern) for pattern in mutation.named_by)]
