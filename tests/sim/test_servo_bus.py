"""The emulated servo bus, byte by byte, through the pty that a driver would open."""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
import tty
from collections import Counter
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.servo_protocol import (
    BROADCAST,
    PING,
    READ,
    SYNC_READ,
    SYNC_WRITE,
    WRITE,
    instruction,
    status,
    sync_read,
    sync_write,
    wire_time_s,
)
from hardware.servo_table import REGISTERS
from sim.bus_faults import FAULT_KINDS, BusFaults, FaultInjector, Reply, Wanted, sum_is_right
from sim.lagging_arm import LAG_S, SAG_S, LaggingArm
from sim.servo import EmulatedServo, ServoState, calibrated_servos
from sim.servo_bus import LockStepClock, ServoBusEmulator
from sim.servo_bus_process import ServoBusProcess

pytestmark = pytest.mark.realtime

IDS = (1, 2, 3, 4, 5, 6)
HANG_S = 20.0  # nothing here takes that long
FENCE = 99  # this servo is never touched by what a test does


class StillArm:
    """Servos that measure what a test says, and a list of what they were told."""

    def __init__(self, states: dict[int, ServoState]) -> None:
        self.states = states
        self.commands: list[tuple[int, int, bool, int]] = []
        self.times: list[int] = []

    def advance(self, now_ns: int) -> None:
        self.times.append(now_ns)

    def state(self) -> dict[int, ServoState]:
        return self.states

    def command(self, servo_id: int, goal_ticks: int, torque_enabled: bool, torque_limit: int) -> None:
        self.commands.append((servo_id, goal_ticks, torque_enabled, torque_limit))


class Line:
    """The reader's end of the port, as bytes."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self.fd)

    def send(self, data: bytes) -> None:
        os.write(self.fd, data)

    def receive(self, count: int) -> bytes:
        """`count` bytes, or fewer where they do not come."""
        data = b""
        while len(data) < count and select.select([self.fd], [], [], HANG_S)[0]:
            data += os.read(self.fd, count - len(data))
        return data

    def exchange(self, data: bytes) -> bytes:
        """All that these instructions are answered: what comes before the answer of the fence, a servo of its
        own that is pinged behind them. Without a wait, so without a chance to miss what comes slowly.
        """
        self.send(data + instruction(FENCE, PING))
        fence = status(FENCE, 0)
        answer = b""
        while not answer.endswith(fence) and select.select([self.fd], [], [], HANG_S)[0]:
            answer += os.read(self.fd, 4096)
        assert answer.endswith(fence), answer.hex(" ")
        return answer[: -len(fence)]


@contextlib.contextmanager
def line_to(emulator: ServoBusEmulator) -> Iterator[Line]:
    with emulator:
        line = Line(emulator.port)
        try:
            yield line
        finally:
            os.close(line.fd)


def still_bus(states: dict[int, ServoState] | None = None, **settings) -> ServoBusEmulator:
    states = states or {i: ServoState(100 * i) for i in IDS}
    settings = {"paced": False, **settings}
    servos = settings.pop("servos", [EmulatedServo(i) for i in states])
    arm = StillArm({**states, FENCE: ServoState(0)})
    return ServoBusEmulator(arm, [*servos, EmulatedServo(FENCE)], **settings)


def hexed(text: str) -> bytes:
    return bytes.fromhex(text)


# -- the protocol --------------------------------------------------------------------------------------------


def test_every_instruction_is_answered_as_the_manual_writes_it():
    state = ServoState(position=0x0805, velocity=-100, load=-5, current=-7)
    with line_to(still_bus({1: state, 2: ServoState(0x0102)})) as line:
        assert line.exchange(hexed("FF FF 01 02 01 FB")) == hexed("FF FF 01 02 00 FC")  # ping
        assert line.exchange(hexed("FF FF 01 04 02 03 02 F3")) == hexed(
            "FF FF 01 04 00 09 03 EE"
        )  # model 777
        assert line.exchange(hexed("FF FF 01 04 02 38 02 BE")) == hexed("FF FF 01 04 00 05 08 ED")  # position
        # velocity, load and current: magnitude, and the sign in bit 15, 10, 15
        assert line.exchange(hexed("FF FF 01 04 02 3A 04 BA"))[5:9] == hexed("64 80 05 04")
        assert line.exchange(hexed("FF FF 01 04 02 45 02 B1"))[5:7] == hexed("07 80")
        # write 2048 to Goal_Position; read it back
        assert line.exchange(hexed("FF FF 01 05 03 2A 00 08 C4")) == hexed("FF FF 01 02 00 FC")
        assert line.exchange(hexed("FF FF 01 04 02 2A 02 CC"))[5:7] == hexed("00 08")
        # sync read: each servo in the order named
        assert line.exchange(hexed("FF FF FE 06 82 38 02 02 01 3C")) == hexed(
            "FF FF 02 04 00 02 01 F6" + "FF FF 01 04 00 05 08 ED"
        )
        # sync write to both: no answer
        assert line.exchange(hexed("FF FF FE 0A 83 2A 02 01 11 04 02 22 05 09")) == b""
        assert line.exchange(hexed("FF FF 02 04 02 2A 02 CB"))[5:7] == hexed("22 05")


def test_a_block_of_six_holds_what_the_servos_measure_in_their_units():
    states = {i: ServoState(4095 - i, i - 3, 10 * i - 35, 3 - i) for i in IDS}
    with line_to(still_bus(states)) as line:
        data = line.exchange(sync_read(IDS, 56, 15))
    assert len(data) == 6 * 21
    for i in IDS:
        block = data[21 * i - 21 :][5:20]
        fields = ("Present_Position", "Present_Velocity", "Present_Load", "Present_Current")
        assert ServoState(*(decoded(block, name) for name in fields)) == states[i]
        assert decoded(block, "Present_Voltage") == 74 and decoded(block, "Present_Temperature") == 30


def decoded(block: bytes, name: str, start: int = 56) -> int:
    register = REGISTERS[name]
    return register.decode(block[register.address - start :][: register.size])


def test_broadcasts_are_answered_only_by_pings_and_sync_reads():
    emulator = still_bus()
    with line_to(emulator) as line:
        assert line.exchange(instruction(BROADCAST, PING)) == b"".join(status(i, 0) for i in (*IDS, FENCE))
        assert line.exchange(instruction(BROADCAST, READ, bytes((56, 2)))) == b""
        assert line.exchange(instruction(BROADCAST, WRITE, bytes((41, 9)))) == b""
        assert [servo.get("Acceleration") for servo in emulator.servos.values()] == [9] * 7
    assert emulator.received == Counter({PING: 1 + 3, READ: 1, WRITE: 1})  # with the fences


def test_instructions_in_pieces_in_a_row_and_behind_noise():
    with line_to(still_bus()) as line:
        ping, pong = instruction(2, PING), status(2, 0)
        line.send(ping[:3])
        assert line.exchange(ping[3:]) == pong
        assert line.exchange(ping + ping) == pong * 2
        assert line.exchange(b"\x00\xff\x12\xff\xff\xff" + ping) == pong
        assert line.exchange(ping[:-1] + b"\x00") == b""  # wrong checksum
        line.send(b"\xff\xff\x01\xf0")  # a beginning without an end, which is forgotten after a while
        for _ in range(round(HANG_S)):
            time.sleep(0.1)
            line.send(ping)
            if select.select([line.fd], [], [], 0.9)[0]:
                break
        assert line.receive(6) == pong


def test_an_absent_or_dead_servo_is_silent_and_the_others_are_not():
    emulator = still_bus()
    with line_to(emulator) as line:
        emulator.servos[3].dead = True
        assert line.exchange(instruction(3, PING)) == b"" and line.exchange(instruction(77, PING)) == b""
        answers = line.exchange(sync_read((2, 3, 77, 4), 56, 2))
        assert [answers[start + 2] for start in range(0, len(answers), 8)] == [2, 4]
        line.exchange(sync_write(42, {3: b"\x01\x02", 4: b"\x01\x02"}))
        assert emulator.servos[3].get("Goal_Position") == 0 and emulator.servos[4].get("Goal_Position") == 513
        emulator.servos[3].dead = False
        assert line.exchange(instruction(3, PING)) == status(3, 0)
        emulator.hang()
        line.send(instruction(1, PING) + instruction(1, WRITE, bytes((41, 7))))
        while not emulator.received[WRITE]:
            time.sleep(0.001)
        emulator.hang(False)
        assert line.exchange(instruction(1, READ, bytes((41, 1)))) == status(1, 0, b"\x00")


def test_response_level_0_leaves_writes_unanswered():
    with line_to(still_bus(servos=[EmulatedServo(i, {"Response_Status_Level": 0}) for i in IDS])) as line:
        assert line.exchange(instruction(1, WRITE, bytes((41, 9)))) == b""
        assert line.exchange(instruction(1, READ, bytes((41, 1)))) == status(1, 0, b"\x09")


# -- registers -----------------------------------------------------------------------------------------------


@given(st.integers(0, 127), st.binary(min_size=1, max_size=40))
def test_what_is_written_is_read_back_except_where_nothing_can_be_written(address, data):
    servo = EmulatedServo(1)
    before = servo.read(0, 128)
    servo.write(address, data, 0)
    after = servo.read(0, 128)
    read_only = {*range(5), *range(56, 73)}
    for place in range(128):
        if not address <= place < address + len(data) or place in read_only:
            # Torque_Enable = 128 sets the homing offset and switches the torque off
            assert after[place] == before[place] or place in (31, 32, 40)
        elif place not in (31, 32, 40):
            assert after[place] == data[place - address]
    touched = set(range(address, address + len(data)))
    middle = 40 in touched and data[40 - address] == 128
    assert bool(servo.eeprom_writes) == (address < 40 or middle)


def test_eeprom_keeps_what_was_written_unlocked():
    servo = EmulatedServo(1, {"Homing_Offset": -37})
    servo.write(21, b"\x10", 0)
    assert servo.get("P_Coefficient") == 16
    servo.power_cycle()
    assert servo.get("P_Coefficient") == 32 and servo.get("Homing_Offset") == -37
    servo.write(55, b"\x00", 1)  # Lock
    servo.write(21, b"\x10", 2)
    servo.write(40, b"\x01", 3)
    servo.power_cycle()
    assert servo.get("P_Coefficient") == 16
    assert servo.get("Torque_Enable") == 0 and servo.get("Lock") == 1
    assert [(write.time_ns, write.address, write.data) for write in servo.eeprom_writes] == [
        (0, 21, b"\x10"),
        (2, 21, b"\x10"),
    ]
    assert [write.address for write in servo.writes] == [21, 55, 21, 40]


def test_setting_the_middle_is_told_as_what_it_is():
    servo = EmulatedServo(1, {"Homing_Offset": 100})
    servo.measure(ServoState(3000))
    servo.write(40, b"\x80", 0)
    assert (
        servo.get("Homing_Offset") == 3100 - 2048 and servo.eeprom_writes and not servo.command.torque_enabled
    )


def test_an_overload_switches_torque_off_and_keeps_it_off():
    emulator = still_bus()
    arm = emulator.arm
    with line_to(emulator) as line:
        line.exchange(instruction(2, PING))
        assert arm.commands == [(i, 0, False, 1000) for i in (*IDS, FENCE)]  # each is told once at the start
        line.exchange(instruction(2, WRITE, bytes((40, 1))))
        assert arm.commands[-1] == (2, 0, True, 1000)
        emulator.servos[2].raise_flags("overload", "overheat")
        answer = line.exchange(instruction(2, READ, bytes((65, 1))))
        assert answer == status(2, 32 | 4, bytes((32 | 4,)))  # the error byte, and the register Status
        assert arm.commands[-1] == (2, 0, False, 1000)
        line.exchange(instruction(2, WRITE, bytes((40, 1))))
        assert emulator.servos[2].get("Torque_Enable") == 0
        emulator.servos[2].clear_flags()
        line.exchange(instruction(2, WRITE, bytes((40, 1))))
        assert arm.commands[-1] == (2, 0, True, 1000)
        emulator.servos[2].raise_flags("voltage")  # an alarm, and no reason to let go
        assert line.exchange(instruction(2, PING)) == status(2, 1)
        assert arm.commands[-1] == (2, 0, True, 1000)
    with pytest.raises(KeyError):
        emulator.servos[2].raise_flags("overlod")


def test_goals_are_held_within_the_servo_s_own_limits():
    servo = EmulatedServo(1, {"Min_Position_Limit": 1000, "Max_Position_Limit": 3000})
    for goal, aim in ((500, 1000), (2000, 2000), (4000, 3000), (-1, 1000)):
        servo.set("Goal_Position", goal)
        assert servo.command.goal_ticks == aim


def test_measurements_beyond_a_register_are_held_at_its_end():
    servo = EmulatedServo(1)
    servo.measure(ServoState(4095, 10**6, -5000, 10**6))
    assert servo.get("Present_Velocity") == 32767 and servo.get("Present_Load") == -1023
    assert servo.get("Moving") == 1


def test_calibrated_servos_hold_what_lerobot_writes(tmp_path):
    from hardware.calibration import load_calibration

    path = tmp_path / "arm.json"
    path.write_text(
        '{"pan": {"id": 1, "drive_mode": 0, "homing_offset": -12, "range_min": 800, "range_max": 3300},'
        ' "gripper": {"id": 6, "drive_mode": 0, "homing_offset": 7, "range_min": 2000, "range_max": 3500}}'
    )
    pan, gripper = calibrated_servos(load_calibration(path), {"Present_Temperature": 41})
    assert (pan.id, gripper.id) == (1, 6)
    assert (pan.get("Homing_Offset"), pan.get("Min_Position_Limit"), pan.get("Max_Position_Limit")) == (
        -12,
        800,
        3300,
    )
    assert gripper.get("Return_Delay_Time") == 0 and gripper.get("Present_Temperature") == 41
    assert not gripper.eeprom_writes


# -- time ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_units", [0, 250])
def test_no_reply_comes_before_the_wire_would_have_brought_it(delay_units):
    baud = 57_600
    servos = [EmulatedServo(i, {"Return_Delay_Time": delay_units}) for i in IDS]
    with line_to(still_bus(servos=servos, paced=True, baud=baud)) as line:
        request = sync_read(IDS, 56, 15)
        start = time.monotonic()
        line.send(request)
        for count in range(1, 7):
            line.receive(21)
            passed = time.monotonic() - start
            assert passed >= wire_time_s(len(request) + 21 * count, baud) + count * delay_units * 2e-6
        # A second instruction handed over with the first begins when the first has ended.
        start = time.monotonic()
        line.send(sync_write(42, {i: b"\x00\x08" for i in IDS}) + instruction(1, PING))
        line.receive(6)
        assert time.monotonic() - start >= wire_time_s(26 + 6 + 6, baud) + delay_units * 2e-6


def test_in_lock_step_each_sync_read_finds_the_arm_one_period_later():
    clock = LockStepClock(10_000_000)
    arm = StillArm({1: ServoState(1)})
    emulator = ServoBusEmulator(arm, [EmulatedServo(1)], paced=False, clock=clock, on_read=clock.tick)
    with line_to(emulator) as line:
        for _ in range(3):
            line.send(sync_write(42, {1: b"\x00\x08"}) + sync_read((1,), 56, 15))
            line.receive(21)
    assert arm.times == [0, 10**7, 10**7, 2 * 10**7, 2 * 10**7, 3 * 10**7]
    assert [entry.clock_ns for entry in emulator.truth] == [10**7, 2 * 10**7, 3 * 10**7]


def test_truth_is_what_was_sent_and_when():
    emulator = still_bus(kept_truth=2)
    with line_to(emulator) as line:
        line.exchange(instruction(1, PING))
        line.exchange(sync_read(IDS, 40, 4))
        for length in (15, 16):
            before = time.monotonic_ns()
            line.send(sync_read((5, 2), 71 - length, length))
            data = line.receive(2 * (6 + length))
            entry = emulator.truth[-1]
            assert before <= entry.received_ns <= time.monotonic_ns()
            assert (entry.address, entry.length) == (71 - length, length)
            assert entry.blocks == {5: data[5 : 5 + length], 2: data[6 + length + 5 : -1]}
            assert entry.value(5, "Present_Position") == 500
    assert [entry.request for entry in emulator.truth] == [4, 5]  # two are kept; ping, read, their fences


# -- faults --------------------------------------------------------------------------------------------------

REQUEST = sync_read((1, 2, 3), 56, 2)
REPLIES = [status(i, 0, (100 * i).to_bytes(2, "little")) for i in (1, 2, 3)]
WHOLE = b"".join(REPLIES)


def test_each_fault_does_what_its_name_says():
    emulator = still_bus()
    with line_to(emulator) as line:
        assert line.exchange(REQUEST) == WHOLE
        emulator.inject("lost", 2)
        assert line.exchange(REQUEST) == REPLIES[0] + REPLIES[2]
        emulator.inject("duplicated", 2)
        assert line.exchange(REQUEST) == REPLIES[0] + REPLIES[1] * 2 + REPLIES[2]
        emulator.inject("echoed")
        assert line.exchange(REQUEST) == REQUEST + WHOLE
        emulator.inject("truncated", 3)
        cut = line.exchange(REQUEST)
        assert len(WHOLE) - 8 < len(cut) < len(WHOLE) and WHOLE.startswith(cut)
        for kind, least in (("corrupted", 1), ("corrupted_run", 2)):
            emulator.inject(kind, 2)
            data = line.exchange(REQUEST)
            wrong = [i for i in range(24) if data[i] != WHOLE[i]]
            assert len(data) == 24 and len(wrong) >= least and {8 <= i < 16 for i in wrong} == {True}
            assert kind == "corrupted_run" or len(wrong) == 1
        assert line.exchange(REQUEST) == WHOLE  # each was for one transaction
        kinds = [(fault.kind, fault.servo_id) for fault in emulator.injected]
        assert kinds == [
            ("lost", 2),
            ("duplicated", 2),
            ("echoed", None),
            ("truncated", 3),
            ("corrupted", 2),
            ("corrupted_run", 2),
        ]
        assert [fault.request for fault in emulator.injected] == [2, 4, 6, 8, 10, 12]  # a fence between


def test_an_echo_comes_also_where_nobody_answers():
    with line_to(still_bus(faults=BusFaults(echoed=1.0))) as line:
        goals = sync_write(42, {1: b"\x00\x08"})
        assert line.exchange(goals) == goals + instruction(FENCE, PING)


def test_a_late_reply_arrives_alone_or_with_the_rest_in_the_midst_of_what_comes_later():
    emulator = still_bus()
    with line_to(emulator) as line:
        emulator.inject("late", 2, delay_s=0.3, rest=False)
        line.send(REQUEST)
        assert line.receive(16) == REPLIES[0] + REPLIES[2]
        assert line.exchange(instruction(4, PING)) == status(4, 0)
        assert line.receive(8) == REPLIES[1]
        emulator.inject("late", 2, delay_s=0.3, rest=True)
        line.send(REQUEST)
        assert line.receive(8) == REPLIES[0]
        start = time.monotonic()
        assert line.receive(16) == REPLIES[1] + REPLIES[2]
        assert time.monotonic() - start > 0.1
    assert [fault.delay_ns for fault in emulator.injected] == [300_000_000] * 2


@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_faults_are_drawn_as_often_as_was_asked(kind):
    injector = FaultInjector(BusFaults(**{kind: 0.2}), seed=3)
    replies = [Reply(i, packet) for i, packet in enumerate(REPLIES, 1)]
    for request in range(2000):
        injector.apply(request, replies)
    assert {fault.kind for fault in injector.done} == {kind}
    assert abs(len(injector.done) - 400) < 5 * math.sqrt(2000 * 0.2 * 0.8)
    if kind != "echoed":
        victims = Counter(fault.servo_id for fault in injector.done)
        assert min(victims[i] for i in (1, 2, 3)) > len(injector.done) / 3 - 5 * math.sqrt(400 * 2 / 9)
    assert injector.done == drawn_again(BusFaults(**{kind: 0.2}), replies)


def drawn_again(faults: BusFaults, replies: list[Reply]) -> list:
    injector = FaultInjector(faults, seed=3)
    for request in range(2000):
        injector.apply(request, replies)
    return injector.done


def test_a_reply_suffers_at_most_one_fault():
    injector = FaultInjector(BusFaults(*[1.0] * 7), seed=0)
    for request in range(200):
        injector.apply(request, [Reply(i, packet) for i, packet in enumerate(REPLIES, 1)])
    for request in range(200):
        hit = [fault.servo_id for fault in injector.done if fault.request == request]
        assert sorted(hit, key=str) == [1, 2, 3, None]
    injector.want(Wanted("lost", 9))  # nobody's reply: nothing to do it to
    before = len(injector.done)
    injector.faults = BusFaults()
    assert injector.apply(200, [Reply(1, REPLIES[0])]) == ([Reply(1, REPLIES[0])], False)
    assert len(injector.done) == before


def test_the_sum_catches_every_changed_byte_and_one_run_in_256_passes_it():
    """The reason why no check of packets alone can be enough."""
    packet = status(4, 0, bytes(range(15)))
    injector = FaultInjector(BusFaults(corrupted=1.0), seed=1)
    for request in range(3000):
        injector.apply(request, [Reply(4, packet)])
    assert not any(fault.passes_sum for fault in injector.done)
    n = 60_000
    injector = FaultInjector(BusFaults(corrupted_run=1.0), seed=1)
    passed = []
    for request in range(n):
        (reply,), _ = injector.apply(request, [Reply(4, packet)])
        assert reply.packet != packet
        passed.append(sum_is_right(reply.packet))
    share = np.mean(passed)
    print(f"\n{sum(passed)} of {n} multi-byte corruptions passed the 8-bit sum: one in {1 / share:.0f}")
    assert abs(share - 1 / 256) < 5 * math.sqrt(1 / 256 / n)
    assert [fault.passes_sum for fault in injector.done] == passed


def test_faults_with_impossible_settings_are_refused():
    for wrong in ({"lost": 1.1}, {"late": -0.1}, {"late_s": (0.2, 0.1)}):
        with pytest.raises(ValueError, match="probabilities"):
            BusFaults(**wrong)
    with pytest.raises(ValueError, match="no fault 'lst' among late, lost"), still_bus() as emulator:
        emulator.inject("lst")


def test_unplugging_hangs_up_and_the_port_comes_back_at_its_path():
    emulator = still_bus()
    with line_to(emulator) as line:
        path = emulator.port
        emulator.unplug()
        assert not os.path.lexists(path)
        assert select.select([line.fd], [], [], HANG_S)[0] and os.read(line.fd, 10) == b""
        with pytest.raises(OSError):
            os.write(line.fd, b"x")
        emulator.plug_in()
        again = Line(path)
        assert again.exchange(instruction(1, PING)) == status(1, 0)
        os.close(again.fd)
    assert not os.path.lexists(path)


def test_an_arm_that_breaks_ends_the_port_and_is_told():
    class Broken(StillArm):
        def advance(self, now_ns: int) -> None:
            raise FloatingPointError("unstable")

    emulator = ServoBusEmulator(Broken({1: ServoState(1)}), [EmulatedServo(1)], paced=False)
    with pytest.raises(RuntimeError, match="broke down") as error, line_to(emulator) as line:
        line.send(instruction(1, PING))
        assert os.read(line.fd, 10) == b""  # hung up
    assert isinstance(error.value.__cause__, FloatingPointError)


# -- the lagging arm, and a process --------------------------------------------------------------------------


def test_the_lagging_arm_follows_its_exponential_and_sags_when_limp():
    arm = LaggingArm({1: 2000.0}, {1: 1000.0})
    arm.advance(0)
    arm.command(1, 3000, True, 1000)
    arm.advance(round(LAG_S / 2 * 1e9))
    arm.advance(round(LAG_S * 1e9))
    assert arm.ticks[1] == pytest.approx(3000 - 1000 / math.e)
    state = arm.state()[1]
    assert state.position == round(3000 - 1000 / math.e)
    assert state.velocity == round(1000 / math.e / LAG_S) and 0 < state.load <= 1000 and state.current > 0
    for torque, limit in ((False, 1000), (True, 0)):
        before = arm.ticks[1]
        arm.command(1, 3000, torque, limit)
        arm.advance(arm._now_ns + round(SAG_S * 1e9))
        assert arm.ticks[1] == pytest.approx(1000 + (before - 1000) / math.e) and arm.state()[1].load == 0
    arm.advance(arm._now_ns)  # no time, no motion
    assert LaggingArm({1: 5.0}).state()[1] == ServoState(5)


def test_a_bus_in_its_own_process_can_be_asked_and_ends_with_its_owner():
    make = partial(
        ServoBusEmulator,
        LaggingArm({1: 700.0, FENCE: 0.0}),
        [EmulatedServo(1), EmulatedServo(FENCE)],
        paced=False,
    )
    with ServoBusProcess(make) as bus:
        line = Line(bus.port)
        assert line.exchange(sync_read((1,), 56, 2))[5:7] == (700).to_bytes(2, "little")
        bus.ask("inject", "lost", 1)
        assert line.exchange(instruction(1, PING)) == b""
        bus.ask("servos.1.raise_flags", "voltage")
        assert line.exchange(instruction(1, PING)) == status(1, 1)
        assert [fault.kind for fault in bus.ask("injected")] == ["lost"]
        (entry,) = bus.ask("truth")
        assert entry.value(1, "Present_Position") == 700
        assert bus.ask("received")[SYNC_READ] == 1 and bus.ask("received")[SYNC_WRITE] == 0
        with pytest.raises(AttributeError):
            bus.ask("no_such_thing")
        os.close(line.fd)
    assert not os.path.lexists(bus.port) and not bus._process.is_alive()


def test_lerobot_s_own_bus_takes_it_for_an_arm():
    """The emulator against a driver that is not ours: handshake, calibration in EEPROM, readings, a write."""
    feetech = pytest.importorskip("lerobot.motors.feetech", exc_type=ImportError)
    from lerobot.motors import Motor, MotorNormMode

    values = {"Homing_Offset": -37, "Min_Position_Limit": 900, "Max_Position_Limit": 3200}
    states = {i: ServoState(100 * i, -50 * i, 10 - 20 * i, 3 * i) for i in IDS}
    emulator = still_bus(states, servos=[EmulatedServo(i, values) for i in IDS])
    with emulator:
        bus = feetech.FeetechMotorsBus(
            emulator.port, {f"m{i}": Motor(i, "sts3215", MotorNormMode.DEGREES) for i in IDS}
        )
        bus.connect()
        try:
            found = bus.read_calibration().values()
            assert {(c.homing_offset, c.range_min, c.range_max) for c in found} == {(-37, 900, 3200)}
            for field in ("Position", "Velocity", "Load", "Current"):
                read = bus.sync_read(f"Present_{field}", normalize=False)
                assert list(read.values()) == [getattr(states[i], field.lower()) for i in IDS]
            bus.sync_write("Goal_Position", dict.fromkeys(bus.motors, 2000), normalize=False)
            assert bus.read("Goal_Position", "m4", normalize=False) == 2000
        finally:
            bus.disconnect(disable_torque=False)
