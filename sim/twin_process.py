"""The front of `sim.twin`: the simulated arm, its bus and its cameras in a process of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from sim.json_process import JsonProcess

HandName = Literal["demos", "none"]
_START_S, _ANSWER_S = 90.0, 20.0


class Twin:
    """Starts the twin and says where its parts are; it ends with this object, or with this process.

    Needs no mujoco here.

    Parameters
    ----------
    views : the cameras to serve.
    size : of their images, (width, height).
    fps : of each camera.
    hand : what moves the arm while its torque is off: "demos" (blocks carried between the bowls), or "none",
        and it hangs limp. With a leader the demonstrations move that instead.
    leader : whether a leader arm lies on a second bus.
    seed : of everything that is drawn.
    faults : how likely each fault of the bus is in a transaction, {kind: share}; see `sim.bus_faults`.
    mjcf : a model of the user's own; None takes ours.

    Attributes
    ----------
    port, leader_port : where the buses are (the second None without a leader).
    calibration, leader_calibration : files in LeRobot's form; they go when the twin ends.
    views : the URL of each view.
    pid : of the process.

    Raises
    ------
    InputError : when it cannot start, with what it said.
    """

    def __init__(
        self,
        views: Sequence[str] = ("front", "wrist"),
        size: tuple[int, int] = (320, 240),
        fps: float = 15.0,
        *,
        hand: HandName = "demos",
        leader: bool = False,
        seed: int = 0,
        faults: dict[str, float] | None = None,
        mjcf: Path | str | None = None,
    ) -> None:
        arguments = ["--views", ",".join(views), "--size", f"{size[0]}x{size[1]}", "--fps", f"{fps:g}"]
        arguments += ["--hand", hand, "--seed", str(seed)]
        arguments += ["--leader"] if leader else []
        arguments += ["--faults", ",".join(f"{k}={v:g}" for k, v in faults.items())] if faults else []
        arguments += ["--mjcf", str(mjcf)] if mjcf is not None else []
        self._process = JsonProcess("sim.twin", arguments, "the twin", _START_S)
        hello = self._process.hello
        self.port = str(hello["port"])
        self.leader_port: str | None = hello["leader"]
        self.calibration = Path(hello["calibration"])
        self.leader_calibration = Path(hello["leader_calibration"]) if leader else None
        self.views: dict[str, str] = dict(hello["views"])
        self.pid = self._process.pid

    def command(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do something to the twin, and return its answer; what it understands is in `sim.twin`.

        Raises
        ------
        InputError : for a request it does not understand, or when it has ended.
        """
        return self._process.ask(request, _ANSWER_S)

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process.alive

    def close(self) -> None:
        """End it; a second call does nothing."""
        self._process.close()

    def __enter__(self) -> Twin:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
