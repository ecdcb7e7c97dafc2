"""Encoders of several seeds: the networks that one entry of a study stands for.

`W1: {train: ..., seeds: [0, 1, 2]}` is three networks, `W1_s0`, `W1_s1` and `W1_s2`, made by one recipe from
three seeds. Each is bound, trained, extracted and probed by itself; what is measured of `W1` is the mean over
them. Another latent of W1 (`W1@cls`) and an untrained twin of it are as many networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bars.study import EncoderEntry


def base_encoder(encoder: str) -> str:
    """The encoder whose latent `encoder` is: W1 of W1@cls, and W1 of W1."""
    return encoder.partition("@")[0]


def networks_of(encoders: Mapping[str, EncoderEntry], name: str) -> dict[str, EncoderEntry]:
    """The networks of the encoder `name`, by their own names; itself where it has but one."""
    entry = encoders[name]
    base, at, latent = name.partition("@")
    seeds = seeds_of(encoders, name)
    if not seeds:
        return {name: entry}
    made = {}
    for seed in seeds:
        own: dict[str, object] = {"seeds": None}
        if entry.train is not None:
            own["train"] = {**entry.train, "seed": seed}
        elif entry.twin_of is not None:
            own["twin_of"] = seeded_name(entry.twin_of, seed)
        made[f"{seeded_name(base, seed)}{at}{latent}"] = entry.model_copy(update=own)
    return made


def seeds_of(encoders: Mapping[str, EncoderEntry], name: str) -> tuple[int, ...]:
    """The seeds of an encoder: its own, or those of the one whose latent or untrained twin it is."""
    entry = encoders[base_encoder(name)]
    if entry.twin_of is not None:
        entry = encoders.get(entry.twin_of, entry)
    return entry.seeds or ()


def seeded_name(encoder: str, seed: int) -> str:
    """`W1_s0`: how the network of one seed is called."""
    return f"{encoder}_s{seed}"
