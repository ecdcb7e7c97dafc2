"""Powering the arm, moving it slowly between poses, holding it, and letting go of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hardware.bus import BusFault
from hardware.drivers import Follow, Hold, Watch
from hardware.errors import InputError
from hardware.joint_loop import JointLoop
from hardware.safety import Clear, glide
from hardware.so101 import WALK_CENTRE_RAD

RELEASE_S = 1.5


class ArmKeeper:
    """Has the arm in its care between episodes; it does nothing to an arm that it never powered.

    Parameters
    ----------
    loop : runs the arm's bus.
    clear : asks a model what is hit at joint angles; None leaves slow motions unchecked.
    word : told, in a line, what a person should know.
    """

    def __init__(self, loop: JointLoop, clear: Clear | None, word: Callable[[str], None]) -> None:
        self.loop, self.clear, self._word = loop, clear, word
        self.trouble = ""  # what went wrong in letting go
        self._found: np.ndarray | None = None  # where the arm stood when it was powered

    @property
    def here(self) -> np.ndarray:
        """Where the arm was last sent, or else seen, rad [J]."""
        if self.loop.target is not None:
            return self.loop.target
        assert self.loop.latest is not None
        return self.loop.latest.position

    def power(self) -> None:
        """Torque on, where the arm is; InputError, and no torque on any joint, where that fails."""
        assert self.loop.latest is not None
        found = self.loop.latest.position.copy()
        try:
            self.loop.between_cycles(lambda arm: arm.enable_torque())
        except BusFault as fault:
            self._release()
            raise InputError(
                "the arm", f"cannot be powered: {fault}", "check cables and power, and start again"
            ) from None
        except BaseException:
            self._release()
            raise
        self._found = found
        self.loop.drive(Hold(found))

    def unsafe(self) -> str | None:
        """What forbids to move the arm any further, or None."""
        if self.loop.lost is not None:
            return f"bus_lost: {self.loop.lost}"
        if self.loop.crash is not None:
            return f"recorder_error: {self.loop.crash!r}"
        if self.loop.trip is not None:
            return f"{self.loop.trip.kind}: {self.loop.trip}"
        return None

    def hold(self) -> None:
        """Keep the arm where it was last sent; nothing for one that is not commanded, or tripped."""
        if self.loop.target is not None and self.loop.trip is None:
            self.loop.drive(Hold(self.loop.target))

    def glide_to(self, goal: np.ndarray, what: str, go_on: Callable[[], bool]) -> bool:
        """Move slowly to `goal` (rad [J]), `go_on` asked all the while; whether it arrived.

        InputError when the way there meets something.
        """
        via = None if self.clear is None else np.array(WALK_CENTRE_RAD)
        driver = Follow(glide(self.here, goal, self.clear, via, what))
        self.loop.drive(driver)
        while not driver.finished:
            if self.unsafe() is not None or self.loop.driver is not driver or not go_on():
                self.hold()
                return False
        return True

    def let_go(self, return_first: bool, go_on: Callable[[], bool]) -> None:
        """Back to where the arm was found, if asked and if it may move; then the torque fades out, whatever
        happened on the way.
        """
        if self._found is None:
            return
        try:
            if return_first and self.unsafe() is None:
                self._word("the arm goes back slowly to where it was found; Ctrl-C lets go of it where it is")
                self.glide_to(self._found, "the way back", go_on)
        except InputError as error:
            self._word(f"the arm is let go of where it is: {error}")
        finally:
            self._found = None
            self.trouble = self.unsafe() or ""
            left = self._release()
            if left:
                where = (
                    "its bus is gone" if self.loop.lost is not None else f"{', '.join(left)} did not answer"
                )
                self.trouble = f"still_powered: {where}: switch the arm off"
        self._word(self.trouble or "the arm is limp")

    def _release(self) -> tuple[str, ...]:
        """Torque off; the joints of which it is not known that they let go."""
        self.loop.drive(Watch())
        self.loop.stop()
        return self.loop.arm.release(RELEASE_S)
