"""What goes wrong on a servo bus: the faults that the emulator draws or is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np

from hardware.servo_protocol import checksum

FaultKind = Literal["late", "lost", "truncated", "corrupted", "corrupted_run", "duplicated", "echoed"]
FAULT_KINDS: tuple[str, ...] = get_args(FaultKind)

_BODY = 2  # the header's bytes, which the sum does not cover


@dataclass(frozen=True)
class BusFaults:
    """How likely each fault is in a transaction, each drawn on its own; a reply suffers at most one.

    late           a reply, or it and all after it, arrives `late_s` seconds later (drawn evenly between the
                   two), whatever else is on the line by then
    lost           a reply never arrives
    truncated      a reply stops somewhere
    corrupted      one byte of a reply is another one
    corrupted_run  two to six neighbouring bytes from the error byte to the sum are others: the 8-bit sum is
                   the only guard there, and one run in 256 passes it
    duplicated     a reply comes twice
    echoed         the adapter repeats our instruction before the replies, where there are any
    """

    late: float = 0.0
    lost: float = 0.0
    truncated: float = 0.0
    corrupted: float = 0.0
    corrupted_run: float = 0.0
    duplicated: float = 0.0
    echoed: float = 0.0
    late_s: tuple[float, float] = (0.005, 0.2)

    def __post_init__(self) -> None:
        shares = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "late_s"}
        wrong = [name for name, share in shares.items() if not 0 <= share <= 1]
        if wrong or not 0 <= self.late_s[0] <= self.late_s[1]:
            raise ValueError(f"no probabilities, or no span of time: {wrong or self.late_s}")


@dataclass(frozen=True)
class Reply:
    """A packet on its way: which servo's, its bytes, and by how much something delays it."""

    servo_id: int
    packet: bytes
    delay_ns: int = 0


@dataclass(frozen=True)
class InjectedFault:
    """One fault that was done to a transaction, numbered as in `SyncReadTruth.request`."""

    request: int
    kind: FaultKind
    servo_id: int | None  # None: the echo is nobody's
    delay_ns: int = 0
    passes_sum: bool = False  # a corrupted packet whose checksum happens to be right


@dataclass(frozen=True)
class Wanted:
    """A fault asked for in the next transaction that has replies. Without `servo_id` the victim is drawn;
    `rest` delays the replies after it too.
    """

    kind: FaultKind
    servo_id: int | None = None
    delay_s: float | None = None
    rest: bool | None = None


class FaultInjector:
    """Does to replies what was drawn or asked for, and keeps what it did.

    Parameters
    ----------
    faults : how likely each is.
    seed : of the draws.
    """

    def __init__(self, faults: BusFaults, seed: int) -> None:
        self.faults = faults
        self.done: list[InjectedFault] = []
        self._rng = np.random.default_rng(seed)
        self._wanted: list[Wanted] = []

    def want(self, wanted: Wanted) -> None:
        """Do this to the next transaction that has replies."""
        if wanted.kind not in FAULT_KINDS:
            raise ValueError(f"no fault {wanted.kind!r} among {', '.join(FAULT_KINDS)}")
        self._wanted.append(wanted)

    def apply(self, request: int, replies: list[Reply]) -> tuple[list[Reply], bool]:
        """The replies as they will arrive, and whether the instruction is echoed before them."""
        if not replies:  # such as a sync write
            echoed = self.faults.echoed > 0 and bool(self._rng.random() < self.faults.echoed)
            if echoed:
                self.done.append(InjectedFault(request, "echoed", None))
            return replies, echoed
        draws = self._rng.random(len(FAULT_KINDS))
        wanted = [
            Wanted(kind)  # type: ignore[arg-type]
            for kind, draw in zip(FAULT_KINDS, draws)
            if draw < getattr(self.faults, kind)
        ]
        wanted, self._wanted = self._wanted + wanted, []
        whole = list(range(len(replies)))  # replies that nothing has happened to yet
        arriving: list[list[Reply]] = [[reply] for reply in replies]
        echoed = False
        for fault in wanted:
            if fault.kind == "echoed":
                echoed = True
                self.done.append(InjectedFault(request, "echoed", None))
                continue
            victims = [i for i in whole if fault.servo_id in (None, replies[i].servo_id)]
            if victims:
                victim = victims[int(self._rng.integers(len(victims)))]
                whole.remove(victim)
                self._hit(request, fault, victim, arriving)
        return [reply for group in arriving for reply in group], echoed

    def _hit(self, request: int, fault: Wanted, victim: int, arriving: list[list[Reply]]) -> None:
        reply = arriving[victim][0]  # nothing has happened to it, but that one before it may have delayed it
        delay_ns, passes = 0, False
        if fault.kind == "late":
            delay_ns = round((fault.delay_s or self._rng.uniform(*self.faults.late_s)) * 1e9)
            rest = fault.rest if fault.rest is not None else bool(self._rng.random() < 0.5)
            for group in range(victim, len(arriving) if rest else victim + 1):
                arriving[group] = [
                    Reply(late.servo_id, late.packet, late.delay_ns + delay_ns) for late in arriving[group]
                ]
        elif fault.kind == "lost":
            arriving[victim] = []
        elif fault.kind == "duplicated":
            arriving[victim] = [reply, reply]
        else:
            packet = getattr(self, f"_{fault.kind}")(reply.packet)
            passes = fault.kind != "truncated" and sum_is_right(packet)
            arriving[victim] = [Reply(reply.servo_id, packet, reply.delay_ns)]
        self.done.append(InjectedFault(request, fault.kind, reply.servo_id, delay_ns, passes))

    def _truncated(self, packet: bytes) -> bytes:
        return packet[: int(self._rng.integers(1, len(packet)))]

    def _corrupted(self, packet: bytes) -> bytes:
        return self._overwritten(packet, int(self._rng.integers(len(packet))), 1)

    def _corrupted_run(self, packet: bytes) -> bytes:
        first = _BODY + 2  # behind id and length
        length = int(self._rng.integers(2, min(6, len(packet) - first) + 1))
        return self._overwritten(packet, int(self._rng.integers(first, len(packet) - length + 1)), length)

    def _overwritten(self, packet: bytes, start: int, length: int) -> bytes:
        """The packet with each of these bytes replaced by another one."""
        changed = bytearray(packet)
        for i, turn in enumerate(self._rng.integers(1, 256, length).tolist(), start):
            changed[i] ^= turn
        return bytes(changed)


def sum_is_right(packet: Sequence[int] | bytes) -> bool:
    """Whether a packet is one: header and length fit, and the last byte is the sum of the body."""
    body = bytes(packet[_BODY:-1])
    return bytes(packet[:_BODY]) == b"\xff\xff" and body[1] == len(body) - 1 and checksum(body) == packet[-1]
