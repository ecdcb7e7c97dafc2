"""Milliseconds a reading of six servos, beside its time on the wire and beside LeRobot's bus.

    python tests/benchmarks/bench_bus.py [--cycles 400] [--rounds 5] [--baud 1000000]

The servos are emulated behind a pty, paced at the baud rate, in a process of their own. Each round goes
through all ways of reading in turn, so that other work on the machine meets them alike; the fastest tenth
shows what they cost when it leaves them alone. The goals: a reading of the block of six (position, velocity,
load, voltage, temperature, status, moving, current) costs at most 1.1 times its wire time, and the same eight
quantities through LeRobot's FeetechMotorsBus at least three times as much as through ours. LeRobot is
measured where it is installed (pip install -e .[lerobot]).

Then the stale read: one reply comes 120 ms late, the joints move with every request, and reading goes on when
it has come. How many of the hundred readings that follow are another request's?
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hardware.bus import BusFault, ServoBus
from hardware.serial_port import SerialPort
from hardware.servo_protocol import STATUS_OVERHEAD, sync_read, wire_time_s
from hardware.servo_replies import sound
from hardware.servo_table import REGISTERS
from sim.servo import EmulatedServo, ServoState
from sim.servo_bus import ServoBusEmulator
from sim.servo_bus_process import ServoBusProcess

try:
    from lerobot.motors import Motor, MotorNormMode
    from lerobot.motors.feetech import FeetechMotorsBus
except ImportError:
    FeetechMotorsBus = None

IDS = (1, 2, 3, 4, 5, 6)
LATE_S, AFTERWARDS = 0.12, 100
QUANTITIES = {
    "position": "Present_Position",
    "velocity": "Present_Velocity",
    "load": "Present_Load",
    "voltage": "Present_Voltage",
    "temperature": "Present_Temperature",
    "status": "Status",
    "moving": "Moving",
    "current": "Present_Current",
}
POSITION = REGISTERS["Present_Position"]


class SteppingArm:
    """Joints that stand where they are but for `step` ticks a request."""

    def __init__(self, step: int) -> None:
        self.step, self.requests = step, 0

    def tick(self) -> None:
        self.requests += 1

    def advance(self, now_ns: int) -> None:
        pass

    def state(self) -> dict[int, ServoState]:
        moved = self.step * self.requests
        return {i: ServoState((600 * i + moved) % 4096, 40 * i - 150, 90 * i - 300, 10 * i) for i in IDS}

    def command(self, servo_id: int, goal_ticks: int, torque_enabled: bool, torque_limit: int) -> None:
        pass


def stepping_bus(step: int, baud: int) -> ServoBusEmulator:
    arm = SteppingArm(step)
    servos = [EmulatedServo(i, {"Return_Delay_Time": 0}) for i in IDS]
    return ServoBusEmulator(arm, servos, baud=baud, on_read=arm.tick)


def lerobot_bus(port: str) -> Any:
    motors = {f"joint{i}": Motor(i, "sts3215", MotorNormMode.DEGREES) for i in IDS}
    bus = FeetechMotorsBus(port, motors)
    bus.connect()
    return bus


def reading_s(sizes: list[int], baud: int) -> float:
    """Wire time of sync reads of six servos with so many bytes each."""
    asked = len(sync_read(IDS, 56, 2))
    return sum(wire_time_s(asked + len(IDS) * (STATUS_OVERHEAD + size), baud) for size in sizes)


def block_of(bus: ServoBus) -> dict[str, list[int]]:
    block = bus.read_block(IDS)
    if not bus.confirm():
        raise BusFault("late", IDS, "bytes behind a block")
    return {name: getattr(block, name).tolist() for name in QUANTITIES}


def positions_of(port: SerialPort) -> dict[str, list[int]]:
    """The least that one can do: ask, wait, check."""
    port.send(sync_read(IDS, POSITION.address, POSITION.size))
    stride = STATUS_OVERHEAD + POSITION.size
    data = port.receive(len(IDS) * stride, time.monotonic_ns() + 10**9)
    if not sound(data, IDS, POSITION.size):
        raise BusFault("timeout", IDS, "no sound answer")
    return {"position": [POSITION.decode(data[i * stride + 5 :][:2]) for i in range(len(IDS))]}


def lerobot_reading(bus: Any, quantities: dict[str, str]) -> dict[str, list[int]]:
    return {
        quantity: list(bus.sync_read(name, normalize=False).values()) for quantity, name in quantities.items()
    }


def costs(arguments: argparse.Namespace) -> None:
    """Print the table of times."""
    with (
        ServoBusProcess(partial(stepping_bus, 0, arguments.baud)) as emulator,
        contextlib.ExitStack() as stack,
    ):
        bus = stack.enter_context(ServoBus(emulator.port, arguments.baud))
        ways: dict[str, tuple[Callable[[], dict[str, list[int]]], float]] = {
            "ours: the block of six, eight quantities": (
                partial(block_of, bus),
                reading_s([15, 16], arguments.baud) / 2,  # the two lengths that take turns
            ),
            "ours: positions alone": (partial(positions_of, bus._port), reading_s([2], arguments.baud)),
        }
        if FeetechMotorsBus is not None:
            theirs = lerobot_bus(emulator.port)
            stack.callback(theirs.disconnect, disable_torque=False)
            sizes = [REGISTERS[name].size for name in QUANTITIES.values()]
            position = {"position": QUANTITIES["position"]}
            ways["LeRobot: the eight quantities"] = (
                partial(lerobot_reading, theirs, QUANTITIES),
                reading_s(sizes, arguments.baud),
            )
            ways["LeRobot: positions alone"] = (
                partial(lerobot_reading, theirs, position),
                reading_s([2], arguments.baud),
            )
        found = {name: read() for name, (read, _) in ways.items()}  # everything is warm
        times: dict[str, list[float]] = {name: [] for name in ways}
        failed = dict.fromkeys(ways, 0)
        for _ in range(arguments.rounds):
            for name, (read, _) in ways.items():
                for _ in range(arguments.cycles):
                    start = time.perf_counter()
                    try:
                        read()
                    except (BusFault, ConnectionError):
                        failed[name] += 1
                    else:
                        times[name].append((time.perf_counter() - start) * 1e3)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {arguments.baud} baud, ms a reading\n")
    print(f"{'':42}{'wire':>7}{'p10':>8}{'p50':>8}{'p99':>8}{'p50/wire':>10}{'failed':>8}")
    median = {name: float(np.median(values)) for name, values in times.items()}
    for name, (_, wire_s) in ways.items():
        wire_ms, (p10, p50, p99) = wire_s * 1e3, np.percentile(times[name], [10, 50, 99])
        print(f"{name:42}{wire_ms:7.2f}{p10:8.2f}{p50:8.2f}{p99:8.2f}{p50 / wire_ms:10.2f}{failed[name]:8d}")
    ours = next(iter(ways))
    share = median[ours] / (ways[ours][1] * 1e3)
    print(f"\nthe block of six costs {share:.2f} times its wire time (goal: 1.1 at most)")
    theirs_name = "LeRobot: the eight quantities"
    if theirs_name not in ways:
        print("LeRobot is not installed: not compared")
        return
    same = all(found[name][key] == found[ours][key] for name in ways for key in found[name])
    print(f"LeRobot takes {median[theirs_name] / median[ours]:.1f} times as long (goal: 3 at least)")
    print(f"the values are {'equal' if same else 'NOT EQUAL: ' + str(found)}")


def wrong_after_late_reply_ours(arguments: argparse.Namespace) -> str:
    with ServoBusProcess(partial(stepping_bus, 7, arguments.baud)) as emulator:
        with ServoBus(emulator.port, arguments.baud) as bus:
            emulator.ask("inject", "late", IDS[0], delay_s=LATE_S, rest=True)
            with contextlib.suppress(BusFault):
                bus.read_block(IDS, time.monotonic_ns() + 10_000_000)
            time.sleep(2 * LATE_S)
            blocks = []
            for _ in range(AFTERWARDS):
                start_ns = time.monotonic_ns()
                with contextlib.suppress(BusFault):
                    block = bus.read_block(IDS, start_ns + 10_000_000)
                    if bus.confirm():
                        blocks.append(block)
                time.sleep(max(start_ns + 10_000_000 - time.monotonic_ns(), 0) / 1e9)
            truths = emulator.ask("truth")
    wrong = 0
    for block in blocks:
        own = [truth for truth in truths if block.start_ns <= truth.received_ns <= block.end_ns][-1]
        wrong += block.position.tolist() != [own.value(i, POSITION.name) for i in IDS]
    return f"{wrong} of {len(blocks)} samples wrong, {AFTERWARDS - len(blocks)} cycles without a sample"


def wrong_after_late_reply_theirs(arguments: argparse.Namespace) -> str:
    with ServoBusProcess(partial(stepping_bus, 7, arguments.baud)) as emulator:
        bus = lerobot_bus(emulator.port)
        position = {"position": POSITION.name}
        emulator.ask("inject", "late", IDS[0], delay_s=LATE_S, rest=True)
        with contextlib.suppress(ConnectionError):
            lerobot_reading(bus, position)
        time.sleep(2 * LATE_S)
        read: list[list[int] | None] = []
        for _ in range(AFTERWARDS):
            start = time.monotonic()
            try:
                read.append(lerobot_reading(bus, position)["position"])
            except ConnectionError:
                read.append(None)
            time.sleep(max(start + 0.01 - time.monotonic(), 0))
        bus.disconnect(disable_torque=False)
        truths = list(emulator.ask("truth"))[-AFTERWARDS:]
    failures = read.count(None)
    wrong = sum(
        positions is not None and positions != [truth.value(i, POSITION.name) for i in IDS]
        for positions, truth in zip(read, truths)
    )
    return f"{wrong} of {AFTERWARDS - failures} readings wrong, {failures} raised an error"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=400, help="readings a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--baud", type=int, default=1_000_000)
    arguments = parser.parse_args()
    costs(arguments)
    print(f"\none reply {LATE_S * 1e3:.0f} ms late, {AFTERWARDS} readings at 100 Hz after it")
    print(f"{'ours':10}{wrong_after_late_reply_ours(arguments)}")
    if FeetechMotorsBus is not None:
        print(f"{'LeRobot':10}{wrong_after_late_reply_theirs(arguments)}")


if __name__ == "__main__":
    main()
