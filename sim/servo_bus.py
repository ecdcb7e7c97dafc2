"""A serial port with emulated STS3215 servos on it, and the arm that they move.

`ServoBusEmulator` opens a pty whose other end (`.port`) any driver opens as it would /dev/ttyACM0. What lies
behind the servos is an `ArmBehind`. The emulator calls it from one thread only, its own:

    arm.advance(now_ns)                                            always first; time never goes back
    arm.state() -> {servo id: ServoState}                          for every read of present values
    arm.command(servo_id, goal_ticks, torque_enabled, torque_limit)  when one of the three changes, and once a
                                                                     servo at the start

`now_ns` comes from the emulator's `clock` (CLOCK_MONOTONIC unless told otherwise), so an arm that integrates
physics steps up to `now_ns` in `advance`, and in lock-step (`LockStepClock`) moves by exactly one joint
period a sync read, however long that took. Ticks are those that the servo reports and is told, homing offset
included: 0..4095, 4096 a turn.

Time on the wire: an instruction takes its bytes at `baud`; each servo's reply follows after its own
Return_Delay_Time and arrives, whole, when its last byte would have. `paced=False` answers at once. A servo
that is dead or does not exist leaves no gap. What each sync read was truly answered is kept in `truth`, what
was done to the replies in `injected`.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hardware.servo_protocol import (
    BROADCAST,
    HEADER,
    PING,
    READ,
    SYNC_READ,
    SYNC_WRITE,
    WRITE,
    checksum,
    status,
    wire_time_s,
)
from hardware.servo_table import REGISTERS, SECONDS_PER_DELAY_UNIT
from sim.bus_faults import BusFaults, FaultInjector, FaultKind, InjectedFault, Reply, Wanted
from sim.emulated_port import EmulatedPort
from sim.servo import EmulatedServo, ServoCommand, ServoState

STALE_INSTRUCTION_NS = 20_000_000  # a beginning without an end is forgotten after this long


class ArmBehind(Protocol):
    """What moves when the servos are told to."""

    def advance(self, now_ns: int) -> None:
        """Bring the arm to this time of the emulator's clock; does nothing when it is there already."""

    def state(self) -> Mapping[int, ServoState]:
        """What each servo measures now, by servo id."""

    def command(self, servo_id: int, goal_ticks: int, torque_enabled: bool, torque_limit: int) -> None:
        """From now on this servo aims at `goal_ticks` with at most `torque_limit` (0.1 % of its greatest), or
        is limp; the goal is already clipped to the servo's own position limits.
        """


class LockStepClock:
    """A clock that a test moves: `ServoBusEmulator(arm, servos, clock=clock, on_read=clock.tick)`.

    Then each sync read finds the arm exactly `period_ns` later than the one before.
    """

    def __init__(self, period_ns: int, start_ns: int = 0) -> None:
        self.period_ns, self.now_ns = period_ns, start_ns

    def __call__(self) -> int:
        return self.now_ns

    def tick(self) -> None:
        """Move on by one period."""
        self.now_ns += self.period_ns


@dataclass(frozen=True)
class SyncReadTruth:
    """What the servos had in their registers when a sync read reached them.

    Attributes
    ----------
    request : number of the instruction among all that were received, from 0.
    received_ns : when it had been read from the port, CLOCK_MONOTONIC.
    clock_ns : the arm's time.
    address, length : of the block asked for.
    blocks : servo id to its bytes, for the servos that answered.
    """

    request: int
    received_ns: int
    clock_ns: int
    address: int
    length: int
    blocks: dict[int, bytes]

    def value(self, servo_id: int, name: str) -> int:
        """The number that a register of a servo held."""
        register = REGISTERS[name]
        start = register.address - self.address
        return register.decode(self.blocks[servo_id][start : start + register.size])


class ServoBusEmulator:
    """The port, the servos and the wire between them; a context manager.

    Parameters
    ----------
    arm : what the servos move.
    servos : the servos on the bus, e.g. `calibrated_servos(calibration)`.
    paced : whether replies take their time at `baud`; the thread then waits awake for up to 200 us at a time,
        so a reader that shall not share an interpreter lock with it uses `ServoBusProcess`.
    baud : speed of the emulated wire, bits a second.
    faults, seed : what goes wrong, and the seed of the draws.
    clock : the arm's time, ns.
    on_read : called at each sync read before the arm is advanced.
    kept_truth : how many sync reads `truth` remembers.

    Attributes
    ----------
    servos : by id.
    hung : while True, no servo hears or answers anything.
    truth : the last sync reads that were answered.
    received : how many instructions of each code came.
    """

    def __init__(
        self,
        arm: ArmBehind,
        servos: Sequence[EmulatedServo],
        *,
        paced: bool = True,
        baud: int = 1_000_000,
        faults: BusFaults | None = None,
        seed: int = 0,
        clock: Callable[[], int] = time.monotonic_ns,
        on_read: Callable[[], None] | None = None,
        kept_truth: int = 50_000,
    ) -> None:
        self.arm = arm
        self.servos = {servo.id: servo for servo in servos}
        self.paced, self.baud = paced, baud
        self.hung = False
        self.truth: deque[SyncReadTruth] = deque(maxlen=kept_truth)
        self.received: Counter[int] = Counter()
        self._injector = FaultInjector(faults or BusFaults(), seed)
        self._clock, self._on_read = clock, on_read
        self._requests = 0
        self._commanded: dict[int, ServoCommand] = {}
        self._passed_on: dict[int, int] = {}
        self._buffer, self._buffered_ns = bytearray(), 0
        self._instructed_ns = 0
        self._port = EmulatedPort(self._receive, awake=paced)

    # -- life ------------------------------------------------------------------------------------------------

    @property
    def port(self) -> str:
        """Path to open, the same after unplugging and plugging in again."""
        return self._port.path

    def start(self) -> ServoBusEmulator:
        """Open the port and serve it from a thread."""
        self._port.start()
        return self

    def stop(self) -> None:
        """Close the port; RuntimeError from whatever ended its thread before, where something did."""
        self._port.stop()

    def __enter__(self) -> ServoBusEmulator:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    # -- trouble on request ----------------------------------------------------------------------------------

    @property
    def injected(self) -> list[InjectedFault]:
        """Every fault done so far."""
        return list(self._injector.done)

    def inject(
        self,
        kind: FaultKind,
        servo_id: int | None = None,
        delay_s: float | None = None,
        rest: bool | None = None,
    ) -> None:
        """Do this fault to the next transaction that has replies (see `BusFaults`): to this servo's reply
        (None: drawn), a late one by `delay_s`, alone or with the rest of the replies behind it.
        """
        self._port.ask(lambda: self._injector.want(Wanted(kind, servo_id, delay_s, rest)))

    def set_faults(self, faults: BusFaults) -> None:
        """Draw faults like this from now on."""
        self._port.ask(lambda: setattr(self._injector, "faults", faults))

    def hang(self, hung: bool = True) -> None:
        """Let no servo hear or answer anything, until `hang(False)`."""
        self.hung = hung

    def unplug(self) -> None:
        """Pull the adapter: the reader's port hangs up, and the path is gone."""
        self._port.unplug()

    def plug_in(self) -> None:
        """The adapter is back at the same path."""
        self._port.plug_in()

    # -- the line --------------------------------------------------------------------------------------------

    def _receive(self, data: bytes, now_ns: int) -> None:
        """Act on each instruction that is whole."""
        if self._buffer and now_ns - self._buffered_ns > STALE_INSTRUCTION_NS:
            self._buffer.clear()
        self._buffered_ns = now_ns
        self._buffer += data
        while (packet := self._next_instruction()) is not None:
            self._act(packet, now_ns)

    def _next_instruction(self) -> bytes | None:
        """The next packet with a right checksum, bytes before it thrown away."""
        buffer = self._buffer
        while True:
            start = buffer.find(HEADER)
            del buffer[: start if start >= 0 else max(len(buffer) - 1, 0)]
            if len(buffer) > 2 and buffer[2] == HEADER[0]:  # no servo has this id: the header begins later
                del buffer[:1]
                continue
            if len(buffer) < 4 or len(buffer) < buffer[3] + 4:
                return None
            end = buffer[3] + 4
            packet = bytes(buffer[:end])
            if buffer[3] >= 2 and checksum(packet[2:-1]) == packet[-1]:
                del buffer[:end]
                return packet
            del buffer[:1]

    # -- what servos do --------------------------------------------------------------------------------------

    def _act(self, packet: bytes, received_ns: int) -> None:
        servo_id, code, params = packet[2], packet[4], packet[5:-1]
        request, self._requests = self._requests, self._requests + 1
        self.received[code] += 1
        if self.hung:
            return
        if code == SYNC_READ and self._on_read is not None:
            self._on_read()
        clock_ns = self._clock()
        self.arm.advance(clock_ns)
        replies: list[Reply] = []
        if code == SYNC_READ and len(params) > 2:
            replies = self._sync_read(request, received_ns, clock_ns, params)
        elif code == SYNC_WRITE and len(params) > 2:
            self._sync_write(params, clock_ns)
        else:
            replies = self._addressed(servo_id, code, params, clock_ns)
        self._pass_on()
        replies, echoed = self._injector.apply(request, replies)
        self._send(packet, replies, echoed, received_ns)

    def _alive(self, ids: Sequence[int]) -> list[EmulatedServo]:
        return [self.servos[i] for i in ids if i in self.servos and not self.servos[i].dead]

    def _measure(self) -> None:
        self._pass_on()  # flags may have been raised since the last instruction
        state = self.arm.state()
        for servo_id, servo in self.servos.items():
            servo.measure(state[servo_id])

    def _sync_read(self, request: int, received_ns: int, clock_ns: int, params: bytes) -> list[Reply]:
        address, length, ids = params[0], params[1], params[2:]
        self._measure()
        servos = self._alive(ids)
        blocks = {servo.id: servo.read(address, length) for servo in servos}
        self.truth.append(SyncReadTruth(request, received_ns, clock_ns, address, length, blocks))
        return [Reply(servo.id, status(servo.id, servo.error, blocks[servo.id])) for servo in servos]

    def _sync_write(self, params: bytes, clock_ns: int) -> None:
        address, length = params[0], params[1]
        for start in range(2, len(params) - length, length + 1):
            for servo in self._alive(params[start : start + 1]):
                servo.write(address, params[start + 1 : start + 1 + length], clock_ns)

    def _addressed(self, servo_id: int, code: int, params: bytes, clock_ns: int) -> list[Reply]:
        """Ping, read and write; of those to all servos only the ping is answered."""
        broadcast = servo_id == BROADCAST
        servos = self._alive(sorted(self.servos) if broadcast else [servo_id])
        if code == PING:
            return [Reply(servo.id, status(servo.id, servo.error)) for servo in servos]
        if code == READ and len(params) == 2 and not broadcast:
            self._measure()
            return [
                Reply(servo.id, status(servo.id, servo.error, servo.read(params[0], params[1])))
                for servo in servos
            ]
        if code == WRITE and len(params) > 1:
            for servo in servos:
                servo.write(params[0], params[1:], clock_ns)
            answering = [servo for servo in servos if servo.get("Response_Status_Level") and not broadcast]
            return [Reply(servo.id, status(servo.id, servo.error)) for servo in answering]
        return []

    def _pass_on(self) -> None:
        """Tell the arm what has changed of the servos' commands."""
        for servo_id, servo in self.servos.items():
            if self._passed_on.get(servo_id) == servo.changes:
                continue
            self._passed_on[servo_id] = servo.changes
            command = servo.command
            if self._commanded.get(servo_id) != command:
                self._commanded[servo_id] = command
                self.arm.command(servo_id, *command)

    def _send(self, instruction: bytes, replies: list[Reply], echoed: bool, received_ns: int) -> None:
        """Put replies on the wire, each with the time at which the reader gets it."""
        on_wire_ns = max(received_ns, self._instructed_ns) + self._wire_ns(instruction)
        self._instructed_ns = on_wire_ns  # one that came with it has to wait for its end
        if echoed:
            self._port.schedule(on_wire_ns, instruction)
        for reply in replies:
            delay_s = self.servos[reply.servo_id].get("Return_Delay_Time") * SECONDS_PER_DELAY_UNIT
            on_wire_ns += self._wire_ns(reply.packet) + (round(delay_s * 1e9) if self.paced else 0)
            self._port.schedule(on_wire_ns + reply.delay_ns, reply.packet)

    def _wire_ns(self, packet: bytes) -> int:
        return round(wire_time_s(len(packet), self.baud) * 1e9) if self.paced else 0
