"""The bus against real bytes on a pty: whatever comes, no value is another transaction's or servo's."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pty_servos import PtyServos, late, nothing, sound

from hardware import InputError
from hardware import servo_protocol as protocol
from hardware.bus import BUS_FAULT_KINDS, BusFault, BusLost, ServoBus, serial_ports
from hardware.read_lengths import OUTSTANDING_NS, PATIENT_NS, QUICK_FAILURES, ReadLengths
from hardware.servo_table import REGISTERS

pytestmark = pytest.mark.realtime

IDS = (1, 2, 3, 4, 5, 6)
PATIENT_S = 2.0  # a margin that no busy machine uses up; where a reply does come, none of it is waited for
SHORT_S = 0.05


@pytest.fixture
def servos() -> Iterator[PtyServos]:
    with PtyServos() as running:
        yield running


@pytest.fixture
def bus(servos: PtyServos) -> Iterator[ServoBus]:
    with ServoBus(servos.port, margin_s=PATIENT_S) as opened:
        yield opened


def count_up(servos: PtyServos) -> None:
    """Every sync read finds positions that it shares with no other, and no servo with another."""
    cycle = [0]

    def move() -> None:
        cycle[0] += 1
        for servo_id in servos.memory:
            servos.set(servo_id, Present_Position=(cycle[0] * 7 + servo_id) % 32768)

    servos.on_sync_read = move


def truth(servos: PtyServos) -> list[int]:
    return [servos.get(servo_id, "Present_Position") for servo_id in IDS]


def sync_read_sizes(servos: PtyServos) -> list[int]:
    return [params[1] for _, code, params in servos.instructions if code == protocol.SYNC_READ]


def wait_until(condition: object) -> None:
    deadline = time.monotonic() + 10
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.001)


# -- what a healthy bus says -------------------------------------------------------------------------------


def test_a_block_holds_all_quantities_of_all_servos(servos: PtyServos, bus: ServoBus) -> None:
    for servo_id in IDS:
        servos.set(
            servo_id,
            Present_Position=-servo_id,
            Present_Velocity=-100 * servo_id,
            Present_Load=-10 * servo_id,
            Present_Voltage=70 + servo_id,
            Present_Temperature=30 + servo_id,
            Status=servo_id,
            Moving=servo_id % 2,
            Present_Current=-servo_id,
        )
    servos.errors[4] = 36
    before = time.monotonic_ns()
    block = bus.read_block(IDS)
    after = time.monotonic_ns()
    assert block.position.tolist() == [-1, -2, -3, -4, -5, -6]
    assert block.velocity.tolist() == [-100, -200, -300, -400, -500, -600]
    assert block.load.tolist() == [-10, -20, -30, -40, -50, -60]
    assert block.voltage.tolist() == [71, 72, 73, 74, 75, 76]
    assert block.temperature.tolist() == [31, 32, 33, 34, 35, 36]
    assert block.status.tolist() == [1, 2, 3, 4, 5, 6]
    assert block.moving.tolist() == [1, 0, 1, 0, 1, 0]
    assert block.current.tolist() == [-1, -2, -3, -4, -5, -6]
    assert block.error.tolist() == [0, 0, 0, 36, 0, 0]
    assert before <= block.start_ns < block.time_ns < block.end_ns <= after
    assert block.time_ns == (block.start_ns + block.end_ns) // 2
    assert bus.confirm()
    assert not bus.faults


def test_one_transaction_a_block_and_consecutive_ones_differ_in_length(
    servos: PtyServos, bus: ServoBus
) -> None:
    for _ in range(6):
        bus.read_block(IDS)
        assert bus.confirm()
    assert sync_read_sizes(servos) == [15, 16, 15, 16, 15, 16]
    assert {params[0] for _, _, params in servos.instructions} == {55, 56}


def test_reading_writes_nothing(servos: PtyServos, bus: ServoBus) -> None:
    for _ in range(3):
        bus.read_block(IDS)
        bus.confirm()
    bus.ping(1)
    bus.read(2, "Torque_Enable")
    bus.read_registers(3, ("Homing_Offset", "Model_Number"))
    assert servos.instructions and not servos.written


@pytest.mark.parametrize("name", sorted(REGISTERS))
def test_every_register_is_read_as_it_is(servos: PtyServos, bus: ServoBus, name: str) -> None:
    register = REGISTERS[name]
    servos.memory[2] = bytearray(range(1, 88))
    expected = register.decode(bytes(range(1, 88))[register.address : register.address + register.size])
    for _ in range(3):  # each time with other neighbours
        assert bus.read(2, name) == expected


def test_several_registers_in_one_transaction(servos: PtyServos, bus: ServoBus) -> None:
    servos.set(5, Homing_Offset=-700, Min_Position_Limit=11, Max_Position_Limit=4000)
    names = ("Homing_Offset", "Min_Position_Limit", "Max_Position_Limit", "Firmware_Major_Version")
    assert bus.read_registers(5, names) == dict(zip(names, (-700, 11, 4000, 3)))
    assert len(servos.instructions) == 1
    with pytest.raises(ValueError, match="partly in EEPROM"):
        bus.read_registers(5, ("Homing_Offset", "Torque_Enable"))


def test_writes_reach_the_servos(servos: PtyServos, bus: ServoBus) -> None:
    assert bus.write(3, "Goal_Position", 1234) == 0
    servos.errors[3] = 32
    assert bus.write(3, "Torque_Enable", 1) == 32
    bus.sync_write("Goal_Position", {1: 100, 6: 600})
    bus.read_block(IDS)  # the sync write has been heard by now
    assert [servos.get(i, "Goal_Position") for i in IDS] == [100, 0, 1234, 0, 0, 600]
    assert servos.get(3, "Torque_Enable") == 1


@pytest.mark.parametrize("name", [name for name, entry in REGISTERS.items() if not entry.writable])
def test_eeprom_and_measurements_are_never_written(servos: PtyServos, bus: ServoBus, name: str) -> None:
    with pytest.raises(InputError, match="jointprobe never writes it"):
        bus.write(1, name, 1)
    with pytest.raises(InputError, match="jointprobe never writes it"):
        bus.sync_write(name, {1: 1})
    assert not servos.instructions


def test_a_write_that_does_not_stick_is_refused(servos: PtyServos, bus: ServoBus) -> None:
    servos.frozen[(2, "Torque_Enable")] = 0
    with pytest.raises(BusFault, match="servo 2 holds 0 in Torque_Enable, not the 1") as caught:
        bus.write(2, "Torque_Enable", 1)
    assert (caught.value.kind, caught.value.ids) == ("refused", (2,))


# -- the counterexample ------------------------------------------------------------------------------------


def test_a_late_reply_is_never_taken_for_the_next_answer(servos: PtyServos) -> None:
    """The vendor's SDK is one transaction behind for ever after this."""
    count_up(servos)
    with ServoBus(servos.port, margin_s=PATIENT_S, tries=1) as bus:
        bus.read_block(IDS)
        bus.margin_s = SHORT_S
        servos.script.append(late(2.2 * SHORT_S))
        with pytest.raises(BusFault) as caught:
            bus.read_block(IDS)
        assert caught.value.kind == "timeout" and caught.value.ids == IDS
        fresh = 0
        until = time.monotonic() + 10 * SHORT_S
        while time.monotonic() < until or fresh < 5:
            try:
                block = bus.read_block(IDS)
            except BusFault:  # into this one the late reply fell
                continue
            expected = truth(servos)
            if bus.confirm():
                assert block.position.tolist() == expected
                fresh += 1
        assert bus.faults["timeout"] >= 1


def test_replies_that_are_always_one_transaction_late_are_never_accepted(servos: PtyServos) -> None:
    """Each reply comes while the next question stands: permanent lag, offered on a plate."""
    count_up(servos)
    held: list[bytes] = []

    def one_behind(_: bytes, replies: list[bytes]) -> list[tuple[float, bytes]]:
        previous, held[:] = list(held), replies
        return [(0.0, reply) for reply in previous]

    servos.always = one_behind
    with ServoBus(servos.port, margin_s=0.01, tries=1) as bus:
        for _ in range(150):
            with pytest.raises(BusFault) as caught:
                bus.read_block(IDS)
            assert caught.value.kind in BUS_FAULT_KINDS
        assert bus.faults["wrong_length"] + bus.faults["wrong_id"] > 100


@pytest.mark.parametrize("seed", range(3))
def test_whatever_comes_late_no_value_is_stale(servos: PtyServos, seed: int) -> None:
    """Any part of the replies late by up to 60 ms, lost or doubled, in a third of the transactions."""
    rng = random.Random(seed)
    count_up(servos)

    def mischief(packet: bytes, replies: list[bytes]) -> list[tuple[float, bytes]]:
        kind = rng.choice(("late", "late", "lost", "twice")) if rng.random() < 0.33 else "sound"
        first = rng.randrange(len(replies)) if replies else 0
        last = rng.choice((first + 1, len(replies)))
        part = slice(first, last)
        if kind == "late":
            return late(rng.uniform(0.001, 0.06), part)(packet, replies)
        if kind == "lost":
            return [(0.0, reply) for reply in replies[:first] + replies[last:]]
        if kind == "twice":
            return [(0.0, reply) for reply in replies[:last] + replies[first:]]
        return sound(packet, replies)

    servos.always = mischief
    counted = 0
    with ServoBus(servos.port, margin_s=0.008) as bus:
        for _ in range(250):
            try:
                block = bus.read_block(IDS)
            except BusFault:
                continue
            expected = truth(servos)
            if rng.random() < 0.5:
                time.sleep(rng.uniform(0, 0.004))
            if bus.confirm():
                counted += 1
                assert block.position.tolist() == expected
        assert counted > 50
        assert sum(bus.faults.values()) > 20


def test_lengths_of_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10**12]
    monkeypatch.setattr("hardware.read_lengths.time.monotonic_ns", lambda: now[0])
    lengths = ReadLengths()
    seen = []
    for _ in range(17):  # what goes well is followed by what fails
        length, free_ns = lengths.next(15, 31)
        assert free_ns <= now[0]
        lengths.used(length)
        lengths.answered()
        lengths.failed(length)
        seen.append(length)
        now[0] += 1_000_000
    assert seen == list(range(15, 32))
    # None is free until the failure that is longest ago is half a second old.
    assert lengths.next(15, 31) == (15, 10**12 + OUTSTANDING_NS)


@pytest.mark.parametrize("deaf_s", [0.02, 0.1, 0.17, 0.3, 0.51, 0.9, 3.0])
@pytest.mark.parametrize("try_s", [0.0005, 0.004])
@pytest.mark.parametrize("failed_before", [0, 2])
def test_a_deaf_line_leaves_a_length_to_ask_with(
    deaf_s: float, try_s: float, failed_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [10**12]
    monkeypatch.setattr("hardware.read_lengths.time.monotonic_ns", lambda: now[0])
    lengths = ReadLengths()
    failures: dict[int, int] = {}
    try_ns, cycle_ns = round(try_s * 1e9), 10_000_000

    def ask(deaf: bool) -> bool:
        """Whether there was an answer; a try that fails takes its time."""
        length, free_ns = lengths.next(15, 31)
        if free_ns > now[0]:
            return False
        assert now[0] - failures.get(length, -OUTSTANDING_NS) >= OUTSTANDING_NS
        lengths.used(length)
        if not deaf:
            lengths.answered()
            return True
        now[0] += try_ns
        lengths.failed(length)
        failures[length] = now[0]
        return False

    for _ in range(failed_before):
        ask(True)
        ask(False)
    back_ns = now[0] + round(deaf_s * 1e9)
    while now[0] < back_ns:
        cycle = now[0]
        for _ in range(2):
            ask(True)
        now[0] = max(now[0], cycle + cycle_ns)
    while not ask(False):
        now[0] += 1_000_000
    assert now[0] - back_ns <= PATIENT_NS
    answers = 0
    for _ in range(20):  # and it goes on
        answers += ask(False)
        now[0] += cycle_ns
    assert answers == 20


def test_questions_are_spaced_only_where_nothing_is_answered_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [10**12]
    monkeypatch.setattr("hardware.read_lengths.time.monotonic_ns", lambda: now[0])
    lengths = ReadLengths()
    for _ in range(QUICK_FAILURES):
        assert lengths.next(15, 31)[1] == 0
        lengths.failed(lengths.next(15, 31)[0])
    assert lengths.next(15, 31)[1] == now[0] + PATIENT_NS
    lengths.answered()
    assert lengths.next(15, 31)[1] == 0


def test_a_length_is_avoided_for_longer_than_it_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10**12]
    monkeypatch.setattr("hardware.read_lengths.time.monotonic_ns", lambda: now[0])
    lengths = ReadLengths()
    lengths.failed(15)
    seen = []
    for _ in range(4):
        length, free_ns = lengths.next(15, 31)
        lengths.used(length)
        seen.append(length)
        assert free_ns == 0
    assert seen == [16, 17, 16, 17]
    now[0] += 2_000_000_000
    assert lengths.next(15, 31) == (15, 0)
    assert ReadLengths().next(40, 40) == (40, 0)  # no room for another length


def test_a_withheld_answer_never_fits_where_the_same_servos_own_is_missing(servos: PtyServos) -> None:
    """The worst line there is: every other time servo 2's reply is missing, and what it should have answered
    earlier, if it has the right length, comes in its stead, in its place.
    """
    count_up(servos)
    rng = random.Random(3)
    withheld: dict[int, tuple[int, bytes]] = {}  # by length: since when, and what
    foisted = []

    def spite(packet: bytes, replies: list[bytes]) -> list[tuple[float, bytes]]:
        if packet[4] == protocol.SYNC_READ and rng.random() < 0.5:
            place = packet[7:-1].index(2)  # servo 2 in this request
            own, now_ns = replies[place], time.monotonic_ns()
            since_ns, stale = withheld.get(len(own), (0, b""))
            withheld[len(own)] = now_ns, own
            foisted.append(stale if now_ns - since_ns < OUTSTANDING_NS else b"")
            replies[place] = foisted[-1]
        return sound(packet, [reply for reply in replies if reply])

    servos.always = spite
    accepted = 0
    with ServoBus(servos.port, margin_s=0.004) as bus:
        least = time.monotonic() + 3 * OUTSTANDING_NS / 1e9
        # a busy computer gets fewer questions in, and has to go on for longer
        while time.monotonic() < least or not (accepted > 17 and len(foisted) > 17 and bus.faults["busy"]):
            assert time.monotonic() < least + 60
            try:
                block = bus.read_block(IDS, time.monotonic_ns() + 20_000_000)
            except BusFault:
                time.sleep(0.001)
                continue
            expected = truth(servos)
            if bus.confirm():
                assert block.position.tolist() == expected
                accepted += 1
        assert bus.faults["busy"]  # it ran out of lengths, or had to space its questions, and waited


def test_where_nobody_is_in_a_hurry_a_free_length_is_waited_for(servos: PtyServos, bus: ServoBus) -> None:
    for length in range(15, 32):
        bus._lengths.failed(length)
    bus._lengths.answered()
    count_up(servos)
    started = time.monotonic()
    with pytest.raises(BusFault, match="late answers may come") as caught:
        bus.read_block(IDS, time.monotonic_ns() + 100_000_000)
    assert caught.value.kind == "busy" and not servos.instructions
    assert bus.read_block(IDS).position.tolist() == truth(servos)
    assert time.monotonic() - started >= OUTSTANDING_NS / 1e9 - 0.05


# -- faults ------------------------------------------------------------------------------------------------


def corrupt(place: int) -> object:
    def script(_: bytes, replies: list[bytes]) -> list[tuple[float, bytes]]:
        data = bytearray(b"".join(replies))
        data[place] ^= 0x10
        return [(0.0, bytes(data))]

    return script


STRIDE = protocol.STATUS_OVERHEAD + 15


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        (0, "header"),
        (2, "wrong_id"),
        (3, "wrong_length"),
        (4, "checksum"),
        (9, "checksum"),
        (STRIDE - 1, "checksum"),
    ],
)
def test_a_corrupted_byte_costs_one_try(servos: PtyServos, bus: ServoBus, place: int, kind: str) -> None:
    count_up(servos)
    servos.script.append(corrupt(2 * STRIDE + place))  # type: ignore[arg-type]
    block = bus.read_block(IDS)
    assert block.position.tolist() == truth(servos)
    assert bus.faults == {kind: 1}
    assert bus.discarded == 6 * STRIDE
    assert sync_read_sizes(servos) == [15, 16]


def test_a_fault_names_the_servo(servos: PtyServos) -> None:
    with ServoBus(servos.port, margin_s=PATIENT_S, tries=1) as bus:
        servos.script.append(corrupt(2 * STRIDE + 9))  # type: ignore[arg-type]
        with pytest.raises(BusFault, match="checksum of servo 3's reply") as caught:
            bus.read_block(IDS)
        assert (caught.value.kind, caught.value.ids) == ("checksum", (3,))


def test_a_silent_servo_is_named_though_others_answer_in_its_place(servos: PtyServos) -> None:
    servos.silent = {2, 5}
    with ServoBus(servos.port, margin_s=SHORT_S, tries=2) as bus:
        with pytest.raises(BusFault, match="no whole answer from servos 2, 5") as caught:
            bus.read_block(IDS)
        assert (caught.value.kind, caught.value.ids) == ("timeout", (2, 5))
        assert bus.faults == {"timeout": 2}
        assert [bus.ping(servo_id) for servo_id in (1, 2)] == [777, None]
        assert bus.read_block((1, 3, 4, 6)).position.tolist() == [2048] * 4


@pytest.mark.parametrize("kept", [0, 1, 3, 5, 20])
def test_a_truncated_reply_is_a_fault(servos: PtyServos, bus: ServoBus, kept: int) -> None:
    bus.margin_s = SHORT_S
    count_up(servos)
    servos.script.append(lambda _, replies: [(0.0, b"".join([*replies[:5], replies[5][:kept]]))])
    block = bus.read_block(IDS)
    assert block.position.tolist() == truth(servos)
    assert bus.faults["timeout"] >= 1


def test_a_reply_twice_in_the_middle_fails_the_transaction(servos: PtyServos, bus: ServoBus) -> None:
    count_up(servos)
    servos.script.append(lambda _, replies: [(0.0, b"".join([replies[0], *replies]))])
    block = bus.read_block(IDS)
    assert block.position.tolist() == truth(servos)
    assert bus.faults == {"wrong_id": 1}


def test_a_reply_twice_at_the_end_makes_the_block_doubtful(servos: PtyServos, bus: ServoBus) -> None:
    servos.script.append(lambda _, replies: [(0.0, b"".join([*replies, replies[-1]]))])
    bus.read_block(IDS)
    assert not bus.confirm()
    assert not bus.confirm()  # and stays so
    assert bus.faults == {"late": 1}
    bus.read_block(IDS)
    assert bus.confirm()
    assert bus.faults == {"late": 1}


def test_an_unasked_byte_makes_the_block_doubtful_also_after_a_write(
    servos: PtyServos, bus: ServoBus
) -> None:
    bus.read_block(IDS)
    servos.say(b"\x00")
    wait_until(lambda: bus._port._readable(1))
    bus.sync_write("Goal_Position", {1: 5})  # it is this one that finds the byte
    assert not bus.confirm()


def test_a_fitting_late_reply_pushes_the_true_one_behind_the_end(servos: PtyServos, bus: ServoBus) -> None:
    """Servo 6's reply to an old question of the same length, just in its turn."""
    old = protocol.status(6, 0, bytes(15))
    servos.script.append(lambda _, replies: [(0.0, b"".join([*replies[:5], old, replies[5]]))])
    assert bus.read_block(IDS).position[5] == 0
    assert not bus.confirm()


@pytest.mark.parametrize("answers", [True, False])
def test_an_adapters_echo_is_taken_out(servos: PtyServos, answers: bool) -> None:
    count_up(servos)
    servos.always = lambda packet, replies: [(0.0, packet), *(sound if answers else nothing)(packet, replies)]
    with ServoBus(servos.port, margin_s=PATIENT_S if answers else SHORT_S, tries=1) as bus:
        if not answers:  # an echo is no answer
            with pytest.raises(BusFault) as caught:
                bus.read_block(IDS)
            assert caught.value.kind == "timeout" and caught.value.ids == IDS
            assert bus.ping(1) is None
            return
        for _ in range(4):
            bus.sync_write("Goal_Position", dict.fromkeys(IDS, 7))
            assert bus.read_block(IDS).position.tolist() == truth(servos)
            assert bus.confirm()
        assert bus.read(3, "Model_Number") == 777
        assert bus.write(3, "Goal_Position", 9) == 0
        assert set(bus.faults) == {"echo"}
        assert bus.faults["echo"] == 4 * 2 + 1 + 2


def test_the_echo_of_a_sync_write_alone_is_harmless(servos: PtyServos, bus: ServoBus) -> None:
    bus.read_block(IDS)
    servos.script.append(lambda packet, _: [(0.0, packet[:5]), (0.02, packet[5:])])
    bus.sync_write("Goal_Position", {1: 5})
    wait_until(lambda: bus._port._readable(1))
    assert bus.confirm()
    wait_until(lambda: bus._port._readable(1))
    assert bus.confirm()
    assert bus.faults == {"echo": 1}


def test_a_reading_that_looks_like_its_own_question_is_read(servos: PtyServos, bus: ServoBus) -> None:
    """Servo 1 reports `angle` and stands at 568: asked for two bytes, its reply is the question."""
    servos.errors[1] = 2
    servos.set(1, Present_Position=0x0238)
    asked = protocol.read(1, 56, 2)
    assert protocol.status(1, 2, b"\x38\x02") == asked
    bus.margin_s = SHORT_S
    assert bus.read(1, "Present_Position") == 0x0238


def test_after_a_fault_the_line_must_fall_silent_first(servos: PtyServos) -> None:
    with ServoBus(servos.port, margin_s=PATIENT_S, silence_s=0.1) as bus:
        bus.read_block(IDS)
        # A broken reply, and chatter behind it for a while.
        servos.script.append(
            lambda _, replies: [(0.0, b"\x55" * 6 * (STRIDE + 1)), *((k * 0.03, b"zz") for k in range(1, 6))]
        )
        started = time.monotonic()
        bus.read_block(IDS, time.monotonic_ns() + 10_000_000_000)
        assert time.monotonic() - started >= 0.15 + 0.1
        assert bus.discarded == 6 * (STRIDE + 1) + 10
        assert bus.faults == {"header": 1}
        assert bus.confirm()


def test_noise_without_end_is_busy_and_not_for_ever(servos: PtyServos, bus: ServoBus) -> None:
    bus.silence_s = 0.02
    bus.read_block(IDS)
    servos.script.append(
        lambda _, replies: [(0.0, b"\x55" * 200), *((k * 0.004, b"z") for k in range(1, 500))]
    )
    with pytest.raises(BusFault) as caught:
        bus.read_block(IDS, time.monotonic_ns() + 150_000_000)
    assert caught.value.kind == "header"  # the fault there was, not that there was no time for another try
    with pytest.raises(BusFault) as caught:
        bus.sync_write("Goal_Position", {1: 5})
    assert caught.value.kind == "busy"
    assert bus.faults == {"header": 1, "busy": 1}


def test_nothing_goes_beyond_the_deadline(servos: PtyServos) -> None:
    servos.always = nothing
    with ServoBus(servos.port, margin_s=0.02, tries=1000) as bus:
        deadline = time.monotonic_ns() + 150_000_000
        with pytest.raises(BusFault) as caught:
            bus.read_block(IDS, deadline)
        assert caught.value.kind == "timeout"
        # Retries as time allows, and none that could not be answered in time.
        assert 1 <= len(servos.instructions) <= 8
        asked = len(servos.instructions)
        with pytest.raises(BusFault) as caught:
            bus.read_block(IDS, time.monotonic_ns() + 100_000)
        assert caught.value.kind == "busy"
        time.sleep(0.05)
        assert len(servos.instructions) == asked


def test_a_long_margin_does_not_reach_beyond_the_deadline(servos: PtyServos) -> None:
    servos.always = nothing
    with ServoBus(servos.port, margin_s=3600) as bus:
        with pytest.raises(BusFault) as caught:
            bus.read_block(IDS, time.monotonic_ns() + 100_000_000)
        assert caught.value.kind == "timeout" and len(servos.instructions) == 1


def test_what_was_asked_before_us_is_not_our_answer(servos: PtyServos) -> None:
    with ServoBus(servos.port, margin_s=PATIENT_S, silence_s=0.1) as bus:
        servos.say(b"".join(protocol.status(servo_id, 0, bytes(15)) for servo_id in IDS))
        assert bus.read_block(IDS).position.tolist() == [2048] * 6
        assert bus.discarded == 6 * STRIDE
        assert bus.confirm() and not bus.faults


# -- the port ----------------------------------------------------------------------------------------------


def test_unplugging_is_lost_and_stays_lost(servos: PtyServos, bus: ServoBus) -> None:
    bus.read_block(IDS)
    servos.unplug()
    for act in (
        lambda: bus.read_block(IDS),
        bus.confirm,
        lambda: bus.ping(1),
        lambda: bus.write(1, "Torque_Enable", 0),
        lambda: bus.sync_write("Goal_Position", {1: 5}),
    ):
        with pytest.raises(BusLost, match="is gone"):
            act()
    bus.close()
    bus.close()


def test_unplugging_while_an_answer_is_awaited(servos: PtyServos, bus: ServoBus) -> None:
    servos.always = nothing
    threading.Timer(0.1, servos.unplug).start()
    with pytest.raises(BusLost) as caught:
        bus.read_block(IDS)
    assert caught.value.kind == "lost"


def test_a_second_recorder_is_refused_and_the_first_one_undisturbed(servos: PtyServos) -> None:
    with ServoBus(servos.port, margin_s=PATIENT_S) as first:
        with pytest.raises(InputError, match="in use by this program already"):
            ServoBus(servos.port)
        code = f"from hardware.bus import ServoBus\nServoBus({servos.port!r})"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert other.returncode == 1
        assert f"in use by process {os.getpid()}" in other.stderr and "another recorder" in other.stderr
        assert first.read_block(IDS).position.tolist() == [2048] * 6
        assert first.confirm()
    ServoBus(servos.port).close()


def test_ports_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardware.serial_port.serial_ports", lambda: ["/dev/serial/by-id/usb-arm"])
    with pytest.raises(InputError, match=r"no serial port of this machine.*ports here: /dev/serial/by-id"):
        ServoBus(tmp_path / "ttyACM7")
    monkeypatch.setattr("hardware.serial_port.serial_ports", list)
    with pytest.raises(InputError, match="this machine has no serial port now"):
        ServoBus(tmp_path / "ttyACM7")
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path, "/dev/null"):
        with pytest.raises(InputError, match=r"serial port\b.* - give a device"):
            ServoBus(path)


def test_a_port_without_permission(servos: PtyServos) -> None:
    os.chmod(servos.port, 0)
    code = (
        "import os\nfrom hardware.bus import ServoBus\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"  # root may open everything
        f"ServoBus({servos.port!r})"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert other.returncode == 1 and "usermod -aG dialout" in other.stderr


def test_this_machines_ports_can_be_listed() -> None:
    assert all(os.path.exists(port) for port in serial_ports())


def test_a_bus_that_hangs_is_no_deadlock(servos: PtyServos) -> None:
    """An adapter that takes no more bytes: the driver's buffer is full."""
    with ServoBus(servos.port, margin_s=SHORT_S, tries=1) as bus:
        servos.halt()
        with pytest.raises(BusFault, match="adapter hangs") as caught:
            for _ in range(100_000):
                bus.sync_write("Goal_Position", dict.fromkeys(IDS, 1))
        assert caught.value.kind == "busy"
