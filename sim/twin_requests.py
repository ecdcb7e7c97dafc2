"""What a running twin may be asked: trouble on its bus, in its servos and in its cameras, and how it is.

A request is a JSON object of one of these forms. `arm` is "follower" unless it says "leader".

    {"bus": KIND, "servo": id, "delay_s": s, "arm": ...}   one fault in the next transaction: `sim.bus_faults`
    {"bus": "faults", "shares": {KIND: share}}             draw faults like this from now on
    {"bus": "unplug" | "plug_in" | "hang" | "resume"}      the adapter, or all servos at once
    {"servo": id, "flag": NAME}                            raise an error flag: overload, overheat, ...
    {"servo": id, "flag": null}                            the trouble is over
    {"servo": id, "dead": true | false}                    it does not answer, or does again
    {"servo": id, "power_cycle": true}                     switched off and on
    {"servo": id, "register": NAME, "value": n}            put a number into a register
    {"camera": view, "fault": KIND, "value": ...}          begin a fault: `sim.camera_server.FAULTS`
    {"camera": view, "fault": null}                        end all faults of the view
    {"state": true}                                        answered by the truth: time_s, position, velocity,
                                                           torque_share, blocks, pictures, faults done
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.arm_behind import TwinArm
from sim.bus_faults import FAULT_KINDS, BusFaults
from sim.camera_server import CameraServer
from sim.servo_bus import ServoBusEmulator


@dataclass(frozen=True)
class TwinParts:
    """What a running twin consists of; `buses` and `calibrations` by arm."""

    twin: TwinArm
    buses: Mapping[str, ServoBusEmulator]
    calibrations: Mapping[str, Path]
    cameras: CameraServer | None

    def hello(self) -> dict[str, Any]:
        """Where everything is."""
        leader = self.buses.get("leader")
        views = self.cameras.views if self.cameras else ()
        return {
            "port": self.buses["follower"].port,
            "leader": leader.port if leader else None,
            "calibration": str(self.calibrations["follower"]),
            "leader_calibration": str(self.calibrations["leader"]) if leader else None,
            "views": {view: self.cameras.url(view) for view in views} if self.cameras else {},
        }

    def state(self) -> dict[str, Any]:
        """How it really is now, for whoever compares it with what was read."""
        with self.twin.lock:
            self.twin.advance(time.monotonic_ns())
            arm = self.twin.arm
            truth: dict[str, Any] = {
                "time_s": self.twin.time_s,
                "position": self.twin.position.tolist(),
                "velocity": arm.velocity.tolist(),
                "torque_share": arm.torque_share.tolist(),
                "blocks": {name: place.tolist() for name, place in arm.blocks.items()},
            }
        views = self.cameras.views if self.cameras else ()
        truth["pictures"] = {view: self.cameras.taken(view) for view in views} if self.cameras else {}
        truth["faults"] = {
            name: dict(Counter(str(fault.kind) for fault in bus.injected)) for name, bus in self.buses.items()
        }
        return truth


def answer(parts: TwinParts, line: bytes | str) -> dict[str, Any]:
    """Do what a line asks for; the answer to it."""
    try:
        request = json.loads(line)
        if not isinstance(request, dict):
            raise ValueError("no object")
        if "state" in request:
            return parts.state()
        if "camera" in request:
            _camera(parts, request)
        elif "bus" in request:
            _bus(_which(parts, request), request)
        elif "servo" in request:
            _servo(_which(parts, request), request)
        else:
            raise ValueError("it asks for none of state, camera, bus and servo")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return {"error": f"not understood: {str(line)[:120]} ({type(error).__name__}: {error})"}
    return {}


def _which(parts: TwinParts, request: dict[str, Any]) -> ServoBusEmulator:
    name = request.get("arm", "follower")
    if name not in parts.buses:
        raise ValueError(f"no arm {name!r} among {', '.join(parts.buses)}")
    return parts.buses[name]


def _camera(parts: TwinParts, request: dict[str, Any]) -> None:
    view = request["camera"]
    if parts.cameras is None or view not in parts.cameras.views:
        raise ValueError(f"no view {view!r}")
    if request["fault"] is None:
        parts.cameras.clear(view)
    else:
        parts.cameras.fault(view, request["fault"], request.get("value"))


def _bus(bus: ServoBusEmulator, request: dict[str, Any]) -> None:
    what = request["bus"]
    if what in ("unplug", "plug_in"):
        getattr(bus, what)()
    elif what in ("hang", "resume"):
        bus.hang(what == "hang")
    elif what == "faults":
        bus.set_faults(BusFaults(**request["shares"]))
    elif what in FAULT_KINDS:
        bus.inject(what, request.get("servo"), request.get("delay_s"), request.get("rest"))
    else:
        kinds = ("unplug", "plug_in", "hang", "resume", "faults", *FAULT_KINDS)
        raise ValueError(f"no {what!r} among {', '.join(kinds)}")


def _servo(bus: ServoBusEmulator, request: dict[str, Any]) -> None:
    servo = bus.servos[request["servo"]]
    if "flag" in request:
        if request["flag"] is None:
            servo.clear_flags()
        else:
            servo.raise_flags(request["flag"])
    elif "dead" in request:
        servo.dead = bool(request["dead"])
    elif "power_cycle" in request:
        servo.power_cycle()
    else:
        servo.set(request["register"], int(request["value"]))
