"""The servo bus's reader against an emulated bus on which everything goes wrong.

Each servo's position, velocity, load and current change with every request, by other amounts at each servo,
so a value of another request or of another servo is recognised as such; what each request was truly answered
comes from the emulator.
"""

from __future__ import annotations

import os
import select
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from hardware.bus import BlockRead, BusFault, BusLost, ServoBus
from hardware.servo_protocol import SYNC_WRITE, WRITE, sync_read
from hardware.servo_table import REGISTERS
from sim.bus_faults import BusFaults, InjectedFault
from sim.servo import EmulatedServo, ServoState
from sim.servo_bus import ServoBusEmulator, SyncReadTruth
from sim.servo_bus_process import ServoBusProcess

pytestmark = pytest.mark.realtime

IDS = (1, 2, 3, 4, 5, 6)
PERIOD_NS = 10_000_000
HANG_NS = 20_000_000_000  # nothing here takes that long
FIELDS = {
    "position": "Present_Position",
    "velocity": "Present_Velocity",
    "load": "Present_Load",
    "current": "Present_Current",
    "voltage": "Present_Voltage",
    "temperature": "Present_Temperature",
    "status": "Status",
    "moving": "Moving",
}
FAILURES = (
    "timeout",
    "header",
    "wrong_id",
    "wrong_length",
    "checksum",
)  # one each for a request without a block


class TellingArm:
    """Servos whose every measurement tells which request it answers, and whose it is."""

    def __init__(self) -> None:
        self.reads = 0

    def tick(self) -> None:
        self.reads += 1

    def advance(self, now_ns: int) -> None:
        pass

    def state(self) -> dict[int, ServoState]:
        k = self.reads
        return {
            i: ServoState(
                position=(613 * i + (37 + 2 * i) * k) % 4096,
                velocity=(k * (i + 6)) % 20_011 - 10_000,
                load=(150 * i + k) % 2001 - 1000,
                current=(6 * k + i) % 32_749,
            )
            for i in IDS
        }

    def command(self, servo_id: int, goal_ticks: int, torque_enabled: bool, torque_limit: int) -> None:
        pass


def telling_bus(**settings) -> ServoBusEmulator:
    arm = TellingArm()
    servos = [EmulatedServo(i, {"Return_Delay_Time": 0}) for i in IDS]
    return ServoBusEmulator(arm, servos, on_read=arm.tick, **settings)


@dataclass(frozen=True)
class Cycle:
    """One joint period of the reader: what it got, whether it counts, and what it counted meanwhile."""

    start_ns: int
    end_ns: int
    block: BlockRead | None
    accepted: bool
    counted: Counter[str]

    @property
    def sent(self) -> int:
        """Requests that were sent: each gave a block or one failure."""
        return sum(self.counted[kind] for kind in FAILURES) + (self.block is not None)


def read_cycles(bus: ServoBus, count: int, period_ns: int = 0) -> Iterator[Cycle]:
    """Read as a recorder does: a deadline each period, and a block counts when it is confirmed. Where nothing
    could be asked, the rest of the period is waited for.
    """
    for _ in range(count):
        before, start_ns = Counter(bus.faults), time.monotonic_ns()
        block = None
        try:
            block = bus.read_block(IDS, start_ns + PERIOD_NS)
        except BusLost:
            raise
        except BusFault:
            pass
        accepted = bus.confirm() and block is not None
        yield Cycle(start_ns, time.monotonic_ns(), block, accepted, bus.faults - before)
        pause_ns = max(period_ns, PERIOD_NS if (bus.faults - before)["busy"] else 0)
        time.sleep(max(start_ns + pause_ns - time.monotonic_ns(), 0) / 1e9)


def differences(block: BlockRead, truth: SyncReadTruth) -> list[str]:
    """What of a block is not what the servos had in their registers when this request reached them."""
    return [
        f"{field} of servo {servo_id}: {getattr(block, field)[i]}, truly {truth.value(servo_id, name)}"
        for i, servo_id in enumerate(IDS)
        for field, name in FIELDS.items()
        if getattr(block, field)[i] != truth.value(servo_id, name)
    ] + [f"error byte {byte}" for byte in block.error if byte]


def reconcile(
    cycles: list[Cycle], truths: list[SyncReadTruth], injected: list[InjectedFault]
) -> dict[str, int]:
    """Hold every sample against its own request, and every fault against what the reader counted.

    A request's fault either cost the request, and the reader counted a failure for it: exactly one for each
    request that gave no block, and a `late` for each block that it did not let count. Or the request gave a
    sample all the same; then the fault was one of these:

        echoed        taken out, and counted as echo in that cycle
        late          it came within the reader's time: the values are true, there is nothing to count
        duplicated    the last reply, the surplus coming after the sample was confirmed: counted thereafter
        corrupted_run the 8-bit sum happened to be right: a wrong sample, the only kind there is

    Requests arrive in the order sent, so each is known by the number of those before it.

    Returns
    -------
    How many samples were accepted, faults of each kind cost a request, and wrong blocks passed the sum.
    """
    faults_of: dict[int, list[InjectedFault]] = defaultdict(list)
    for fault in injected:
        faults_of[fault.request].append(fault)
    result: Counter[str] = Counter()
    for index, cycle in enumerate(cycles):
        requests, truths = truths[: cycle.sent], truths[cycle.sent :]
        assert cycle.accepted or cycle.block is None or cycle.counted["late"], (index, cycle)
        for request in requests[:-1] if cycle.accepted else requests:
            result.update(f"cost: {fault.kind}" for fault in faults_of[request.request])
        if not cycle.accepted or cycle.block is None:
            continue
        own = requests[-1]
        assert cycle.block.start_ns <= own.received_ns <= cycle.block.end_ns
        passes = any(fault.passes_sum for fault in faults_of[own.request])
        wrong = differences(cycle.block, own)
        assert not wrong or passes, (index, wrong, faults_of[own.request])
        result["accepted"] += 1
        result.update(["passed the sum"] * passes)
        following = cycles[index + 1].counted if index + 1 < len(cycles) else Counter({"the end": 1})
        for fault in faults_of[own.request]:
            result.update([f"no harm: {fault.kind}"] * (not fault.passes_sum))
            assert fault.kind in ("echoed", "late", "duplicated") or fault.passes_sum, fault
            if fault.kind == "echoed":
                assert cycle.counted["echo"], (index, cycle)
            elif fault.kind == "duplicated":
                assert fault.servo_id == list(own.blocks)[-1] and following, (index, cycle)
    assert not truths  # each request was accounted for
    return dict(result)


def report(result: dict[str, int], injected: list[InjectedFault], bus: ServoBus, count: int) -> None:
    runs = [fault for fault in injected if fault.kind == "corrupted_run"]
    print(f"\n{count} cycles: {result}\n  injected {dict(Counter(fault.kind for fault in injected))}")
    print(f"  the reader counted {dict(bus.faults)}")
    if runs:
        passing = sum(fault.passes_sum for fault in runs)
        print(
            f"  {passing} of {len(runs)} multi-byte corruptions passed the 8-bit sum (1 in 256 is expected)"
        )


EACH = BusFaults(late=0.05, lost=0.05, truncated=0.05, corrupted=0.05, duplicated=0.05, echoed=0.05)
AND_RUNS = BusFaults(*[0.05] * 7)


def hold_against(faults: BusFaults, count: int, seed: int) -> dict[str, int]:
    with telling_bus(paced=False, faults=faults, seed=seed) as emulator, ServoBus(emulator.port) as bus:
        cycles = list(read_cycles(bus, count))
        hang_ns = time.monotonic_ns() + HANG_NS
        while len(emulator.truth) < sum(cycle.sent for cycle in cycles) and time.monotonic_ns() < hang_ns:
            time.sleep(0.001)  # one that was given up may not have been read there yet
        result = reconcile(cycles, list(emulator.truth), emulator.injected)
        report(result, emulator.injected, bus, count)
        assert result["accepted"] > sum(cycle.sent > 0 for cycle in cycles) / 2 > count / 10
        drawn = Counter(fault.kind for fault in emulator.injected)
        assert set(drawn) == {kind for kind in vars(faults) if kind != "late_s" and getattr(faults, kind)}
        assert not any(emulator.received[code] for code in (WRITE, SYNC_WRITE))
        assert all(not servo.writes for servo in emulator.servos.values())
    return result


def test_no_sample_is_another_request_s_or_another_servo_s_and_every_fault_is_counted():
    result = hold_against(EACH, 2000, seed=5)
    assert not result.get("passed the sum")


def test_multi_byte_corruption_passes_only_where_the_sum_is_right():
    hold_against(BusFaults(corrupted_run=0.5), 1000, seed=6)


@pytest.mark.slow
def test_10_000_cycles_with_each_fault():
    result = hold_against(EACH, 10_000, seed=1)
    assert not result.get("passed the sum")


@pytest.mark.slow
def test_10_000_cycles_with_each_fault_and_multi_byte_corruption():
    hold_against(AND_RUNS, 10_000, seed=2)


# -- one thing at a time -------------------------------------------------------------------------------------


class ForgetfulReader:
    """The counterexample: how the vendor's SDK reads positions. It waits for a packet of each id in turn, and
    neither asks which question it answers nor ever empties its input.
    """

    def __init__(self, port: str) -> None:
        self.fd = os.open(port, os.O_RDWR | os.O_NOCTTY)
        self.input = b""

    def positions(self, timeout_s: float) -> list[int] | None:
        os.write(self.fd, sync_read(IDS, 56, 2))
        end_s, found = time.monotonic() + timeout_s, []
        for servo_id in IDS:
            while (at := self.input.find(bytes((0xFF, 0xFF, servo_id, 4)))) < 0 or len(self.input) < at + 8:
                if not select.select([self.fd], [], [], max(end_s - time.monotonic(), 0))[0]:
                    return None
                self.input += os.read(self.fd, 4096)
            found.append(REGISTERS["Present_Position"].decode(self.input[at + 5 : at + 7]))
            self.input = self.input[at + 8 :]
        return found


def test_after_a_late_reply_every_sample_is_its_own_request_s():
    with telling_bus(paced=False) as emulator, ServoBus(emulator.port) as bus:
        before = list(read_cycles(bus, 10, PERIOD_NS))
        emulator.inject("late", 1, delay_s=0.12, rest=True)
        after = list(read_cycles(bus, 40, PERIOD_NS))
        result = reconcile(before + after, list(emulator.truth), emulator.injected)
    assert result["accepted"] > 25 and result["cost: late"] == 1


def test_a_reader_that_never_empties_its_input_stays_one_request_behind():
    with telling_bus(paced=False) as emulator:
        reader = ForgetfulReader(emulator.port)
        try:
            assert reader.positions(10.0) == positions(emulator.truth[-1])
            emulator.inject("late", 1, delay_s=0.3, rest=True)
            assert reader.positions(0.01) is None
            assert select.select([reader.fd], [], [], HANG_NS / 1e9)[0]  # there it is
            stale = [reader.positions(10.0) for _ in range(20)]
        finally:
            os.close(reader.fd)
        assert stale == [
            positions(truth) for truth in list(emulator.truth)[1:21]
        ]  # requests 2 to 21 got these


def positions(truth: SyncReadTruth) -> list[int]:
    return [truth.value(servo_id, "Present_Position") for servo_id in IDS]


def test_an_adapter_that_echoes_everything_costs_nothing():
    with telling_bus(paced=False, faults=BusFaults(echoed=1.0)) as emulator, ServoBus(emulator.port) as bus:
        cycles: list[Cycle] = []
        for k in range(100):
            bus.sync_write("Goal_Position", dict.fromkeys(IDS, 2000 + k))
            cycles += read_cycles(bus, 1)
        truths, injected = list(emulator.truth), emulator.injected
        assert [servo.get("Goal_Position") for servo in emulator.servos.values()] == [2099] * 6
    # The echoes of sync writes are counted with those of the reads behind them, or before that.
    result = reconcile(cycles, truths, injected)
    assert result["accepted"] > 50 and len(injected) == 100 + len(truths)


def test_a_dead_servo_is_named_and_flags_name_their_servo():
    with telling_bus(paced=False) as emulator, ServoBus(emulator.port) as bus:
        emulator.servos[4].raise_flags("overheat", "voltage")
        block = bus.read_block(IDS)
        assert block.error.tolist() == [0, 0, 0, 4 | 1, 0, 0] == block.status.tolist()
        emulator.servos[2].dead = True
        with pytest.raises(BusFault) as fault:
            bus.read_block(IDS)
        assert fault.value.kind == "timeout" and fault.value.ids == (2,)
        assert [bus.ping(i) is None for i in IDS] == [False, True, False, False, False, False]
        emulator.servos[2].dead = False
        assert bus.read_block(IDS).error.tolist() == [0, 0, 0, 5, 0, 0] and bus.confirm()


def test_a_hung_bus_is_waited_for_and_works_again():
    with telling_bus(paced=False) as emulator, ServoBus(emulator.port) as bus:
        emulator.hang()
        for cycle in read_cycles(bus, 5):
            assert not cycle.accepted
        assert bus.faults["timeout"] and not emulator.truth
        emulator.hang(False)
        block = bus.read_block(IDS)
        assert bus.confirm() and not differences(block, emulator.truth[-1])


def test_an_unplugged_adapter_is_told_as_lost_and_works_when_opened_again():
    with telling_bus(paced=False) as emulator:
        with ServoBus(emulator.port) as bus:
            bus.read_block(IDS)
            emulator.unplug()
            with pytest.raises(BusLost):
                bus.read_block(IDS)
        emulator.plug_in()
        with ServoBus(emulator.port) as bus:
            block = bus.read_block(IDS)
            assert bus.confirm() and not differences(block, emulator.truth[-1])


@pytest.mark.slow
def test_on_a_paced_wire_at_100_hz_with_replies_up_to_200_ms_late():
    """The line as it is: 1 Mbaud, a cycle each 10 ms, late replies that fall into any part of a later one."""
    make = partial(telling_bus, faults=EACH, seed=4)
    with ServoBusProcess(make) as emulator, ServoBus(emulator.port) as bus:
        cycles = list(read_cycles(bus, 3000, PERIOD_NS))
        injected = emulator.ask("injected")
        result = reconcile(cycles, list(emulator.ask("truth")), injected)
    report(result, injected, bus, len(cycles))
    assert result["accepted"] > 1500
