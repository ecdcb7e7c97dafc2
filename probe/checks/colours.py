"""Colours: frames that have none, and red and blue exchanged, which only a reference recording can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hardware.checks import Check, not_testable
from hardware.checks.frames import Look

GREY_LEVEL = 2  # channels this near to each other are the same: a codec's rounding
COLOURFUL = 2.0  # mean red less blue, in grey levels, that a scene must have somewhere for a swap to show


def is_grey(small: NDArray[np.uint8]) -> bool:
    """Whether frames (..., 3) carry no colour: red, green and blue alike everywhere."""
    values = small.astype(np.int16)
    return bool((values.max(axis=-1) - values.min(axis=-1)).max(initial=0) <= GREY_LEVEL)


def check_grey(looks: Sequence[Look]) -> Check:
    """Views without colour: one channel copied into all three, or a monochrome camera."""
    grey: dict[str, list[int]] = {}
    seen: dict[str, int] = {}
    for look in looks:
        lit = look.small[~look.black[: len(look.small)]]
        if len(lit):
            seen[look.view] = seen.get(look.view, 0) + 1
            if is_grey(lit):
                grey.setdefault(look.view, []).append(look.episode)
    if not seen:
        return not_testable("grey", "no frame shows anything")
    if not grey:
        return Check("grey", "pass", "every view has colour")
    said = ", ".join(f"{view} in {len(episodes)} of {seen[view]} episodes" for view, episodes in grey.items())
    return Check(
        "grey",
        "warn",
        f"red, green and blue are the same in every pixel: {said}",
        {"episodes": sorted({e for each in grey.values() for e in each}), "views": grey},
        "a monochrome camera, or one channel copied into three: if the camera sees colour, import again",
    )


def mean_picture(looks: Sequence[Look], view: str) -> NDArray[np.float64] | None:
    """Mean over episodes of a view's mean small frame, (16, 16, 3); None where nothing is shown."""
    means = [
        lit.mean(axis=0)
        for look in looks
        if look.view == view and len(lit := look.small[~look.black[: len(look.small)]])
    ]
    return np.mean(means, axis=0) if means else None


def check_colours(looks: Sequence[Look], reference: Sequence[Look]) -> Check:
    """Red and blue exchanged, against a reference recording of the same set-up.

    The mean picture of each view, as it is and with red and blue exchanged, is compared with the reference's
    (each divided by its mean level, so that light does not matter). It is exchanged where that halves the
    distance, and the reference's red and blue differ enough for it to show.
    """
    name = "colours_reference"
    swapped, distances, colourless = [], {}, []
    for view in dict.fromkeys(look.view for look in looks):
        here, there = mean_picture(looks, view), mean_picture(reference, view)
        if here is None or there is None or np.abs(there[..., 0] - there[..., 2]).mean() < COLOURFUL:
            colourless.append(view)
            continue
        here, there = here / here.mean(), there / there.mean()
        as_is = float(np.sqrt(((here - there) ** 2).mean()))
        turned = float(np.sqrt(((here[..., ::-1] - there) ** 2).mean()))
        distances[view] = {"as_is": round(as_is, 5), "red_blue_exchanged": round(turned, 5)}
        if turned < 0.5 * as_is:
            swapped.append(view)
    evidence: dict[str, Mapping[str, float] | object] = {"distance": distances, "views": swapped}
    if swapped:
        message = f"red and blue are exchanged against the reference: {', '.join(swapped)}"
        remedy = "OpenCV gives BGR: turn it round where the frames come in, and record or import again"
        return Check(name, "fail", message, evidence, remedy)
    if not distances:
        return not_testable(name, "no view with colour in both recordings", evidence)
    message = f"colours are those of the reference: {', '.join(distances)}"
    return Check(
        name,
        "pass",
        message + (f"; without colour in one of them: {', '.join(colourless)}" if colourless else ""),
        evidence,
    )
