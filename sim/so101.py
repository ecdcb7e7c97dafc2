"""The simulated SO-101: servo targets in, joint readings and camera images out, as with the real arm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hardware.errors import InputError
from sim.rendering import SceneRenderer, mujoco  # mujoco from there: it imports also where OpenGL is missing
from sim.so101_model import (
    BLOCK_HALF_M,
    BLOCK_NAMES,
    BOWL_CENTRES_M,
    BOWL_NAMES,
    JOINT_NAMES,
    VIEWS,
    build_mjcf,
)

REST_POSITION = (0.0, -1.05, 0.95, 0.95, 0.0, 0.3)  # folded back, the gripper above the table, rad
_SETTLE_S = 0.4  # until dropped blocks lie still

# Torque an ampere gives at the output of an STS3215 (gears 1:345): the maker's stall torque of the 12 V kind,
# 30 kg cm or 2.94 Nm, over the stall current of 2.7 A that shops quote for it; the 7.4 V kind (19.5 kg cm)
# fits the same winding. Assumed, not measured: gear friction is left out, which makes the true ratio smaller
# at low loads.
TORQUE_CONSTANT_NM_A = 2.94 / 2.7
# What the turning motor's own voltage takes off its torque: stall torque over the no-load speed of 45 rpm. It
# is the published model's joint damping (0.60) nearly to the digit, and no current flows for it.
BACK_EMF_NM_S_RAD = 2.94 / (45 / 60 * 2 * np.pi)


class SimArm:
    """A MuJoCo model with the six joints and position actuators of an SO-101 and named cameras.

    Parameters
    ----------
    mjcf : a model of the user's own with the joints and actuators of `JOINT_NAMES`; None takes ours.
    views : the cameras to render.
    image_size : of the images, in pixels: the side of squares, or (width, height).

    Raises
    ------
    InputError : naming the joint, actuator or camera that the model lacks, or why it does not compile.
    """

    joint_names: tuple[str, ...] = JOINT_NAMES

    def __init__(
        self,
        mjcf: Path | str | None = None,
        views: Sequence[str] = VIEWS,
        image_size: int | tuple[int, int] = 96,
    ) -> None:
        self.where = str(mjcf) if mjcf is not None else "sim/so101"
        self.views, self.image_size = tuple(views), image_size
        self.width, self.height = (image_size, image_size) if isinstance(image_size, int) else image_size
        for side in (self.width, self.height):
            if not 8 <= side <= 4096:
                raise InputError("image size", f"{side} is not between 8 and 4096 pixels")
        self.model = _compile(mjcf)
        self.data = mujoco.MjData(self.model)
        self._scratch = mujoco.MjData(self.model)
        joints = [
            _named(self.model, mujoco.mjtObj.mjOBJ_JOINT, name, self.where, "joint") for name in JOINT_NAMES
        ]
        self._actuators = np.array(
            [
                _named(self.model, mujoco.mjtObj.mjOBJ_ACTUATOR, name, self.where, "actuator")
                for name in JOINT_NAMES
            ]
        )
        self._cameras = {
            view: _named(self.model, mujoco.mjtObj.mjOBJ_CAMERA, view, self.where, "camera")
            for view in self.views
        }
        for name, joint, actuator in zip(JOINT_NAMES, joints, self._actuators, strict=True):
            _check_joint(self.model, self.where, name, joint, actuator)
        self._qpos, self._qvel = self.model.jnt_qposadr[joints], self.model.jnt_dofadr[joints]
        self.limits = self.model.jnt_range[joints].copy()
        self._servos = _Servos.of(self.model, self._actuators)
        self._arm_bodies = _arm_bodies(self.model, [int(self.model.jnt_bodyid[joint]) for joint in joints])
        self._arm_geoms = np.isin(self.model.geom_bodyid, list(self._arm_bodies))
        self._blocks = _free_bodies(self.model, BLOCK_NAMES)
        self._renderer: SceneRenderer | None = None
        self._goal, self._glide_steps = np.zeros(len(JOINT_NAMES)), 0
        self._torque_share = np.ones(len(JOINT_NAMES))
        self.reset(None)

    # -- state -----------------------------------------------------------------------------------------------

    @property
    def timestep_s(self) -> float:
        """Of one physics step."""
        return float(self.model.opt.timestep)

    @property
    def time_s(self) -> float:
        """Simulated seconds since the last reset."""
        return float(self.data.time)

    @property
    def position(self) -> np.ndarray:
        """Joint angles in rad, float64 [6]."""
        return self.data.qpos[self._qpos].copy()

    @property
    def velocity(self) -> np.ndarray:
        """Joint velocities in rad/s, float64 [6]."""
        return self.data.qvel[self._qvel].copy()

    @property
    def load(self) -> np.ndarray:
        """Actuator torques as fractions of the greatest the actuator gives, float64 [6]; zeros where it is
        unbounded.
        """
        force, limit = self.torque, self._servos.force_limit
        return np.divide(force, limit, out=np.zeros_like(force), where=limit > 0)

    @property
    def torque(self) -> np.ndarray:
        """What the actuators give, Nm, float64 [6]."""
        return self.data.actuator_force[self._actuators] * (self._torque_share > 0)  # of the step before

    @property
    def current(self) -> np.ndarray:
        """What the servos draw, A, positive where they push towards greater angles, float64 [6]: an estimate
        by `TORQUE_CONSTANT_NM_A`. A motor that is let run draws less, and one that is turned backwards more,
        than its torque at rest would need.
        """
        on = self._torque_share > 0
        return (self.torque - BACK_EMF_NM_S_RAD * self.velocity * on) / TORQUE_CONSTANT_NM_A

    @property
    def blocks(self) -> dict[str, np.ndarray]:
        """Where each block's centre is, m, float64 [3]; empty for a model without them."""
        return {name: self.data.qpos[place : place + 3].copy() for name, (place, _) in self._blocks.items()}

    def block_yaw(self, name: str) -> float:
        """The turn of a block about the vertical, rad (a cube's is known up to quarter turns)."""
        rotation = self.data.xmat[self._blocks[name][1]].reshape(3, 3)
        sideways = rotation[:, int(np.argmin(np.abs(rotation[2])))]  # the block's axis that lies flattest
        return float(np.arctan2(sideways[1], sideways[0]))

    @property
    def scene(self) -> np.ndarray:
        """Where everything is: a copy of MuJoCo's qpos, for `show`."""
        return self.data.qpos.copy()

    def show(self, scene: np.ndarray) -> None:
        """Put everything where it is in another arm of the same model, to be looked at here."""
        self.data.qpos[:] = scene
        mujoco.mj_kinematics(self.model, self.data)

    # -- motion ----------------------------------------------------------------------------------------------

    def reset(
        self, rng: np.random.Generator | None, position: Sequence[float] | np.ndarray | None = None
    ) -> None:
        """Put the arm at `position` (rad; default `REST_POSITION`) at rest and scatter the blocks; time
        starts at zero.

        Without `rng` the blocks stay where the model has them.
        """
        mujoco.mj_resetData(self.model, self.data)
        start = np.clip(REST_POSITION if position is None else position, self.limits[:, 0], self.limits[:, 1])
        self.data.qpos[self._qpos] = start
        self.set_target(start)
        if rng is not None and self._blocks:
            self.scatter(rng)
        self.step(round(_SETTLE_S / self.timestep_s))
        self.data.time = 0.0

    def scatter(self, rng: np.random.Generator) -> None:
        """Blocks into one of the bowls, now and then one onto the table between them; the arm stays as it
        is.
        """
        centre = np.array(BOWL_CENTRES_M[int(rng.integers(len(BOWL_NAMES)))])
        turn = rng.uniform(0, 2 * np.pi)
        for slot, index in enumerate(rng.permutation(len(self._blocks))):
            qpos, body = list(self._blocks.values())[index]
            angle = turn + 2 * np.pi * slot / len(self._blocks) + rng.normal(0, 0.15)
            place = centre + rng.uniform(0.024, 0.031) * np.array([np.cos(angle), np.sin(angle)])
            height = BLOCK_HALF_M + 0.008
            if rng.random() < 0.15:
                place, height = np.array([rng.uniform(0.17, 0.25), (slot - 1) * 0.026]), BLOCK_HALF_M + 0.002
            yaw = rng.uniform(-np.pi, np.pi)
            self.data.qpos[qpos : qpos + 7] = (*place, height, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2))
            velocity = self.model.body_dofadr[body]
            self.data.qvel[velocity : velocity + 6] = 0.0

    def set_target(self, target: Sequence[float] | np.ndarray, glide_s: float = 0.0) -> np.ndarray:
        """Send joint targets (rad, [6]); returns what was sent: the target within the joint limits.

        The servos take the new target at once, or glide to it evenly over `glide_s`, as the real ones do with
        an acceleration limit: their stiff loop would otherwise make stairs of targets that come at 50 Hz. A
        servo without torque takes it at once.
        """
        sent = np.clip(target, self.limits[:, 0], self.limits[:, 1])
        self._goal, self._glide_steps = sent.copy(), round(glide_s / self.timestep_s)
        at_once = (self._torque_share == 0) | (self._glide_steps == 0)
        self.data.ctrl[self._actuators[at_once]] = sent[at_once]
        return sent

    def set_torque(self, share: Sequence[float] | np.ndarray | float) -> None:
        """How much of its greatest torque each servo may give, 0..1, [6] or one for all; 0 lets the joint go
        limp, and it then moves by gravity against its friction and damping. A reset keeps it.
        """
        self._torque_share = np.clip(np.broadcast_to(share, len(JOINT_NAMES)), 0.0, 1.0)
        self._servos.apply(self.model, self._torque_share)

    @property
    def torque_share(self) -> np.ndarray:
        """What `set_torque` was told last, float64 [6]."""
        return self._torque_share.copy()

    def push(self, torque: Sequence[float] | np.ndarray) -> None:
        """A hand at the joints: torques in Nm, [6], that act beside the servos' until other ones are given or
        the arm is reset.
        """
        self.data.qfrc_applied[self._qvel] = torque

    def step(self, count: int = 1) -> None:
        """Advance the physics by `count` steps; InputError when the model is unstable."""
        before = self.data.time
        while count > 0 and self._glide_steps > 0:
            now = self.data.ctrl[self._actuators]
            self.data.ctrl[self._actuators] = now + (self._goal - now) / self._glide_steps
            self._glide_steps -= 1
            mujoco.mj_step(self.model, self.data)
            count -= 1
        if count > 0:
            mujoco.mj_step(self.model, self.data, nstep=count)
        if self.data.time < before:  # MuJoCo starts over, time included, when a state is not finite
            raise InputError(
                self.where,
                f"became unstable at {before:.2f} s",
                "make the timestep smaller or the gains lower",
            )

    # -- seeing and asking -----------------------------------------------------------------------------------

    def render(self, view: str) -> np.ndarray:
        """The image of a view now, RGB uint8 [height, width, 3].

        Raises
        ------
        InputError : for a view this arm was not made with, or when there is no OpenGL library.
        """
        if view not in self._cameras:
            raise InputError(
                self.where, f"has no view {view!r} among {', '.join(self.views)}", "name it in views"
            )
        if self._renderer is None:
            self._renderer = SceneRenderer(self.model, self.width, self.height)
        # mj_step leaves the poses of the step before; bring them to the state that is being shown.
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)
        return self._renderer.render(self.data, self._cameras[view])

    def forward_kinematics(
        self, position: Sequence[float] | np.ndarray, site: str = "gripperframe"
    ) -> np.ndarray:
        """Where a site is at joint angles `position` (rad, [6]), m, float64 [3]; the state stays as it is."""
        number = _named(self.model, mujoco.mjtObj.mjOBJ_SITE, site, self.where, "site")
        self._scratch.qpos[:] = self.data.qpos
        self._scratch.qpos[self._qpos] = position
        mujoco.mj_kinematics(self.model, self._scratch)
        return self._scratch.site_xpos[number].copy()

    def blocked(self, position: Sequence[float] | np.ndarray, clearance_m: float = 0.0) -> str | None:
        """What the arm would hit, or come nearer to than `clearance_m`, at joint angles `position`: "table"
        (anything that stands still), "arm" (itself) or None.

        Links that share a joint, and things that move (blocks), do not count.
        """
        self._scratch.qpos[:] = self.model.qpos0
        self._scratch.qpos[self._qpos] = position
        with self._reaching(clearance_m):
            mujoco.mj_fwdPosition(self.model, self._scratch)
        contact, hit = self._scratch.contact, None
        near = contact.geom[: self._scratch.ncon][contact.dist[: self._scratch.ncon] <= clearance_m]
        for one, other in self.model.geom_bodyid[near].tolist():
            if one in self._arm_bodies and other in self._arm_bodies:
                if (
                    one != other
                    and self.model.body_parentid[one] != other
                    and self.model.body_parentid[other] != one
                ):
                    return "arm"
            elif one in self._arm_bodies or other in self._arm_bodies:
                mine, its = (one, other) if one in self._arm_bodies else (other, one)
                # The base stands on the table for good; a body welded to the world stands still.
                still, moving = self.model.body_weldid[its] == 0, self.model.body_weldid[mine] != 0
                if still and moving and self.model.body_parentid[mine] != its:
                    hit = "table"
        return hit

    @contextmanager
    def _reaching(self, clearance_m: float) -> Iterator[None]:
        """Collisions of the arm are found from this far away."""
        margins = (self.model.geom_margin, self.model.body_margin)
        before = [margin.copy() for margin in margins]
        if clearance_m > 0:
            self.model.geom_margin[self._arm_geoms] = clearance_m
            self.model.body_margin[list(self._arm_bodies)] = clearance_m
        yield
        for margin, value in zip(margins, before, strict=True):
            margin[:] = value

    def close(self) -> None:
        """Free the OpenGL context."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def __enter__(self) -> SimArm:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


@dataclass(frozen=True)
class _Servos:
    """What the model gives its six actuators, and how a share of it is left to them.

    A servo with a lower torque limit is as stiff as before up to that limit, so its forces are clipped; one
    without a bound in the model gets softer instead.
    """

    actuators: np.ndarray
    gain: np.ndarray
    bias: np.ndarray
    force_range: np.ndarray

    @classmethod
    def of(cls, model: mujoco.MjModel, actuators: np.ndarray) -> _Servos:
        gain, bias = model.actuator_gainprm[actuators].copy(), model.actuator_biasprm[actuators].copy()
        return cls(actuators, gain, bias, model.actuator_forcerange[actuators].copy())

    @property
    def force_limit(self) -> np.ndarray:
        """Nm, float64 [6]; 0 where the model sets none."""
        return np.abs(self.force_range).max(axis=1)

    def apply(self, model: mujoco.MjModel, share: np.ndarray) -> None:
        strength = np.where(self.force_limit > 0, 1.0, share)[:, None]
        model.actuator_gainprm[self.actuators] = self.gain * strength
        model.actuator_biasprm[self.actuators] = self.bias * strength
        model.actuator_forcerange[self.actuators] = self.force_range * share[:, None]


def _compile(mjcf: Path | str | None) -> mujoco.MjModel:
    if mjcf is None:
        return mujoco.MjModel.from_xml_string(build_mjcf())
    path = Path(mjcf)
    if not path.is_file():
        raise InputError(path, "there is no such file", "give the path of an MJCF file")
    try:
        return mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise InputError(
            path, f"MuJoCo cannot read it: {reason}", "mend the model, or leave --mjcf out"
        ) from error


def _find(model: mujoco.MjModel, kind: mujoco.mjtObj, name: str) -> int:
    return mujoco.mj_name2id(model, kind.value, name)


def _named(model: mujoco.MjModel, kind: mujoco.mjtObj, name: str, where: str, noun: str) -> int:
    number = _find(model, kind, name)
    if number < 0:
        count = {"joint": model.njnt, "actuator": model.nu, "camera": model.ncam, "site": model.nsite}[noun]
        there = [mujoco.mj_id2name(model, kind.value, index) or f"#{index}" for index in range(count)]
        raise InputError(
            where,
            f"has no {noun} {name!r} among {', '.join(there) or 'none'}",
            f"name a {noun} {name!r} in the model",
        )
    return number


def _check_joint(model: mujoco.MjModel, where: str, name: str, joint: int, actuator: int) -> None:
    """A hinge with limits under a position actuator, or an error that says which of these it is not."""
    if model.jnt_type[joint] != mujoco.mjtJoint.mjJNT_HINGE.value:
        raise InputError(where, f"joint {name!r} is no hinge", "the six joints turn about an axis")
    if not model.jnt_limited[joint]:
        raise InputError(where, f"joint {name!r} has no range", 'give it range="lower upper" in the model')
    if model.actuator_trnid[actuator, 0] != joint:
        raise InputError(
            where, f"actuator {name!r} does not drive joint {name!r}", "an actuator bears its joint's name"
        )
    if not model.actuator_biasprm[actuator, 1] < 0:
        raise InputError(
            where,
            f"actuator {name!r} is not a position servo",
            "use <position> actuators, as the real arm has",
        )


def _free_bodies(model: mujoco.MjModel, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Where in qpos the free joints of these names begin, and their bodies; those that are not there are left
    out.
    """
    found: dict[str, tuple[int, int]] = {}
    for name in names:
        joint = _find(model, mujoco.mjtObj.mjOBJ_JOINT, name)
        if joint >= 0 and model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE.value:
            found[name] = (int(model.jnt_qposadr[joint]), int(model.jnt_bodyid[joint]))
    return found


def _arm_bodies(model: mujoco.MjModel, jointed: list[int]) -> frozenset[int]:
    """The bodies of the six joints, whatever hangs on them, and the base that carries the first."""
    bodies = set(jointed)
    for body in range(1, model.nbody):  # a parent comes before its children
        if int(model.body_parentid[body]) in bodies:
            bodies.add(body)
    base = int(model.body_parentid[jointed[0]])
    return frozenset(bodies | ({base} if base != 0 else set()))
