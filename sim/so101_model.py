"""The SO-101 and its little scene as MJCF, written from a table of the chain and primitives of our own.

Kinematics, limits, masses and actuator gains are those of the published new-calibration model; the shapes are
capsules, boxes and cylinders, so the inertias are those of the primitives with the published masses spread
over them by volume.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hardware.so101 import JOINT_NAMES, LIMITS_RAD

TIMESTEP_S = 0.005
VIEWS = ("front", "top", "wrist")
BLOCK_NAMES = ("block_red", "block_green", "block_blue")
BOWL_NAMES = ("bowl_left", "bowl_right")
BOWL_CENTRES_M = ((0.205, 0.115), (0.205, -0.115))
BOWL_RADIUS_M, BOWL_FLOOR_RADIUS_M = 0.064, 0.045
BLOCK_HALF_M = 0.0105

# Bits of contype / conaffinity: scenery meets the arm and the blocks, the arm meets itself and the blocks,
# blocks meet each other.
_SCENERY, _ARM, _BLOCK = 1, 2, 4


@dataclass(frozen=True)
class Geom:
    """A primitive in its body's frame; `size` as MuJoCo means it, with `ends` (capsules, cylinders) in place
    of pos and quat.
    """

    kind: str
    size: tuple[float, ...]
    rgba: str
    ends: tuple[float, ...] | None = None
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    euler: tuple[float, float, float] = (0.0, 0.0, 0.0)
    finger: bool = False

    @property
    def volume(self) -> float:
        """In cubic metres."""
        if self.kind == "box":
            return 8 * math.prod(self.size)
        radius = self.size[0]
        length = math.dist(self.ends[:3], self.ends[3:]) if self.ends else 2 * self.size[1]
        caps = 4 / 3 * math.pi * radius**3 if self.kind == "capsule" else 0.0
        return math.pi * radius**2 * length + caps


@dataclass(frozen=True)
class Link:
    """A body of the chain: where it sits in its parent (m, quaternion w x y z), its joint (about the local z
    axis, limits as in `hardware.so101`) and its shapes.
    """

    name: str
    joint: str
    pos: tuple[float, float, float]
    quat: tuple[float, float, float, float]
    mass_kg: float
    geoms: tuple[Geom, ...]

    @property
    def limits(self) -> tuple[float, float]:
        """Lower and upper limit of the joint, rad."""
        lower, upper = LIMITS_RAD[JOINT_NAMES.index(self.joint)].tolist()
        return lower, upper


_DARK, _STEEL = ".16 .17 .2 1", ".62 .64 .68 1"
_BLUE, _ORANGE, _YELLOW, _PURPLE, _GREEN, _RED = (
    ".13 .33 .78 1",
    ".95 .45 .08 1",
    ".96 .80 .16 1",
    ".52 .22 .66 1",
    ".12 .62 .36 1",
    ".86 .10 .22 1",
)

BASE_MASS_KG = 0.147
BASE_GEOMS = (
    Geom("box", (0.045, 0.042, 0.012), _DARK, pos=(0.012, 0, 0.012)),
    Geom("cylinder", (0.027,), _DARK, ends=(0.0388353, 0, 0.024, 0.0388353, 0, 0.058)),
    Geom("box", (0.016, 0.024, 0.014), _STEEL, pos=(-0.006, 0, 0.038)),
)

# The chain: published offsets, orientations and masses; the shapes are ours.
CHAIN = (
    Link(
        "shoulder",
        "shoulder_pan",
        (0.0388353, 0, 0.0624),
        (0, 0, -1, 0),
        0.100006,
        (
            Geom("cylinder", (0.026,), _BLUE, ends=(0, 0, 0.002, 0, 0, -0.022)),
            Geom("box", (0.018, 0.013, 0.023), _BLUE, pos=(-0.0304, 0.003, -0.043)),
        ),
    ),
    Link(
        "upper_arm",
        "shoulder_lift",
        (-0.0303992, -0.0182778, -0.0542),
        (0.5, -0.5, -0.5, -0.5),
        0.103,
        (
            Geom("cylinder", (0.018,), _ORANGE, ends=(0, 0, -0.008, 0, 0, 0.008)),
            Geom("capsule", (0.0125,), _ORANGE, ends=(-0.012, -0.003, 0, -0.10, -0.025, 0)),
        ),
    ),
    Link(
        "lower_arm",
        "elbow_flex",
        (-0.11257, -0.028, 0),
        (0.70711, 0, 0, 0.70711),
        0.104,
        (
            Geom("cylinder", (0.017,), _YELLOW, ends=(0, 0, -0.019, 0, 0, 0.019)),
            Geom("capsule", (0.012,), _YELLOW, ends=(-0.012, 0.0005, 0, -0.118, 0.0045, 0)),
        ),
    ),
    Link(
        "wrist",
        "wrist_flex",
        (-0.1349, 0.0052, 0),
        (0.70711, 0, 0, -0.70711),
        0.079,
        (
            Geom("cylinder", (0.0155,), _PURPLE, ends=(0, 0, -0.020, 0, 0, 0.020)),
            Geom("box", (0.012, 0.021, 0.013), _PURPLE, pos=(0, -0.033, 0.014)),
        ),
    ),
    Link(
        "gripper",
        "wrist_roll",
        (0, -0.0611, 0.0181),
        (0.01721, -0.01721, 0.70690, 0.70690),
        0.087,
        (
            Geom("cylinder", (0.0165,), _GREEN, ends=(0, 0, 0.004, 0, 0, -0.012)),
            Geom("box", (0.022, 0.016, 0.015), _GREEN, pos=(0.004, 0, -0.027)),
            Geom("box", (0.0045, 0.0115, 0.029), _GREEN, pos=(-0.0045, 0, -0.069), finger=True),
        ),
    ),
    Link(
        "moving_jaw_so101_v1",
        "gripper",
        (0.0202, 0.0188, -0.0234),
        (0.70711, 0.70711, 0, 0),
        0.012,
        (
            Geom("cylinder", (0.0095,), _RED, ends=(0, 0, 0.006, 0, 0, 0.030)),
            Geom("capsule", (0.0065,), _RED, ends=(0.001, -0.006, 0.0188, 0.008, -0.030, 0.0188)),
            Geom(
                "box",
                (0.0045, 0.024, 0.0115),
                _RED,
                pos=(0.0005, -0.053, 0.0188),
                euler=(0, 0, 0.23),
                finger=True,
            ),
        ),
    ),
)
GRIPPER_FRAME = (-0.0079, -0.00021812, -0.0981274)
GRASP_POINT = (0.0150, 0.0, -0.087)  # between the finger tips when they hold a block

_ACTUATOR = 'kp="998.22" kv="2.731" forcerange="-3.35 3.35"'
_JOINT = 'damping="0.60" frictionloss="0.052" armature="0.028"'


# The room: centre and half sizes of boxes, m, and their colours.
_ROOM = (
    ((-1.05, 0, 0.7), (0.01, 1.2, 0.7), ".62 .68 .72 1"),
    ((1.35, 0, 0.7), (0.01, 1.2, 0.7), ".70 .62 .62 1"),
    ((0.15, 1.2, 0.7), (1.2, 0.01, 0.7), ".62 .70 .62 1"),
    ((0.15, -1.2, 0.7), (1.2, 0.01, 0.7), ".72 .70 .60 1"),
    ((0.15, 0, 1.4), (1.2, 1.2, 0.01), ".82 .82 .84 1"),
    ((1.33, -0.15, 0.45), (0.01, 0.25, 0.45), ".36 .24 .17 1"),
    ((1.33, 0.6, 0.65), (0.01, 0.2, 0.25), ".30 .45 .62 1"),
    ((1.33, -0.8, 0.75), (0.01, 0.22, 0.15), ".85 .83 .70 1"),
    ((0.55, 1.18, 0.6), (0.3, 0.01, 0.3), ".80 .86 .92 1"),
    ((0.5, -1.18, 0.5), (0.25, 0.01, 0.35), ".34 .38 .30 1"),
    ((0.75, 0, 1.38), (0.35, 0.08, 0.01), ".97 .97 .92 1"),
    ((0.24, 0, 0.0006), (0.17, 0.24, 0.0004), ".50 .52 .50 1"),
    ((0.24, 0, 0.001), (0.17, 0.004, 0.0004), ".86 .84 .78 1"),
    ((0.36, 0.19, 0.001), (0.02, 0.02, 0.0004), ".84 .62 .20 1"),
    ((0.36, -0.19, 0.001), (0.02, 0.02, 0.0004), ".25 .30 .55 1"),
)


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:.7g}" for value in values)


def _geom_xml(geom: Geom, mass_kg: float) -> str:
    place = (
        f'fromto="{_numbers(geom.ends)}"'
        if geom.ends
        else f'pos="{_numbers(geom.pos)}" euler="{_numbers(geom.euler)}"'
    )
    kind = "finger" if geom.finger else "arm"
    return (
        f'<geom class="{kind}" type="{geom.kind}" size="{_numbers(geom.size)}" {place} '
        f'mass="{mass_kg:.9g}" rgba="{geom.rgba}"/>'
    )


def _geoms_xml(geoms: Sequence[Geom], mass_kg: float) -> str:
    """The body's shapes; its mass is spread over them by volume, so that the inertia is theirs and the mass
    is the published one.
    """
    whole = sum(geom.volume for geom in geoms)
    return "".join(_geom_xml(geom, mass_kg * geom.volume / whole) for geom in geoms)


def _chain_xml(links: Sequence[Link]) -> str:
    """Nested bodies, the first link outermost."""
    link, rest = links[0], links[1:]
    gripper = ""
    if link.name == "gripper":
        gripper = (
            f'<site name="gripperframe" pos="{_numbers(GRIPPER_FRAME)}" size=".004" group="4"/>'
            f'<site name="grasp" pos="{_numbers(GRASP_POINT)}" size=".004" group="4"/>'
            '<camera name="wrist" pos="0.008 0.066 -0.012" euler="-0.62 0 0" fovy="62"/>'
        )
    return (
        f'<body name="{link.name}" pos="{_numbers(link.pos)}" quat="{_numbers(link.quat)}">'
        f'<joint name="{link.joint}" class="so101" range="{_numbers(link.limits)}"/>'
        f"{_geoms_xml(link.geoms, link.mass_kg)}{gripper}{_chain_xml(rest) if rest else ''}</body>"
    )


def _bowl_xml(name: str, centre: tuple[float, float], rgba: str, sides: int = 10) -> str:
    """A round floor with a ring of boxes leaning outwards, open at the top; blocks lie in it."""
    floor_radius, height, lean = BOWL_FLOOR_RADIUS_M, 0.02, 0.72
    middle = (floor_radius + BOWL_RADIUS_M) / 2
    width = BOWL_RADIUS_M * math.tan(math.pi / sides)
    parts = [
        f'<geom class="scenery" type="cylinder" size="{floor_radius + 0.004} 0.0015" '
        f'pos="0 0 0.0015" rgba="{rgba}"/>'
    ]
    for side in range(sides):
        angle = 2 * math.pi * side / sides
        parts.append(
            f'<geom class="scenery" type="box" size="0.0018 {width:.5f} {height / 2 / math.cos(lean):.5f}" '
            f'pos="{_numbers((middle * math.cos(angle), middle * math.sin(angle), 0.002 + height / 2))}" '
            f'quat="{_numbers(_leaning(angle, lean))}" rgba="{rgba}"/>'
        )
    return f'<body name="{name}" pos="{_numbers((*centre, 0.0))}">{"".join(parts)}</body>'


def _leaning(angle: float, lean: float) -> tuple[float, float, float, float]:
    """Quaternion of a turn by `angle` about z after a lean by `lean` about y."""
    c, s, cl, sl = math.cos(angle / 2), math.sin(angle / 2), math.cos(lean / 2), math.sin(lean / 2)
    return (c * cl, -s * sl, c * sl, s * cl)


def _room_xml() -> str:
    """What the cameras see around the table and nothing touches: walls, a ceiling, a door, pictures, a mat
    with marks.

    As in a real room, where a camera looks up it sees where it looks.
    """
    return "".join(
        f'<geom class="seen" type="box" pos="{_numbers(pos)}" size="{_numbers(size)}" rgba="{rgba}"/>'
        for pos, size, rgba in _ROOM
    )


def _scene_xml() -> str:
    bowls = "".join(
        _bowl_xml(name, centre, rgba)
        for name, centre, rgba in zip(
            BOWL_NAMES, BOWL_CENTRES_M, (".90 .89 .85 1", ".24 .60 .66 1"), strict=True
        )
    )
    colours = (".80 .16 .12 1", ".30 .72 .22 1", ".16 .30 .80 1")
    blocks = "".join(
        f'<body name="{name}" pos="0.2 {0.105 - 0.03 * i} 0.03"><freejoint name="{name}"/>'
        f'<geom class="block" type="box" size="{_numbers((BLOCK_HALF_M,) * 3)}" rgba="{rgba}"/></body>'
        for i, (name, rgba) in enumerate(zip(BLOCK_NAMES, colours, strict=True))
    )
    return bowls + blocks


def build_mjcf(scene: bool = True) -> str:
    """The model as MJCF text.

    Parameters
    ----------
    scene : whether the bowls and blocks stand on the table; without them the arm stands alone.

    Returns
    -------
    MJCF with the joints and position actuators of `JOINT_NAMES`, the sites `gripperframe` and `grasp` and the
    cameras of `VIEWS`.
    """
    actuators = "".join(
        f'<position name="{link.joint}" joint="{link.joint}" {_ACTUATOR} '
        f'ctrlrange="{_numbers(link.limits)}"/>'
        for link in CHAIN
    )
    return f"""<mujoco model="so101">
  <compiler angle="radian" autolimits="true"/>
  <option timestep="{TIMESTEP_S}" integrator="implicitfast"><flag sleep="enable"/></option>
  <visual>
    <global offwidth="96" offheight="96"/>
    <quality offsamples="0" shadowsize="0" numslices="14" numstacks="8" numquads="1"/>
    <headlight ambient=".42 .42 .42" diffuse=".28 .28 .28" specular="0 0 0"/>
    <map znear=".02" zfar="6"/>
  </visual>
  <statistic center=".15 0 .1" extent=".6"/>
  <default>
    <default class="so101"><joint type="hinge" axis="0 0 1" {_JOINT}/></default>
    <default class="seen"><geom contype="0" conaffinity="0"/></default>
    <default class="scenery"><geom contype="{_SCENERY}" conaffinity="0" friction=".9"/></default>
    <default class="block">
      <geom contype="{_BLOCK}" conaffinity="{_SCENERY | _ARM | _BLOCK}" friction="1" mass=".025"/>
    </default>
    <default class="arm">
      <geom contype="{_ARM}" conaffinity="{_SCENERY | _ARM}"/>
      <default class="finger">
        <geom conaffinity="{_SCENERY | _ARM | _BLOCK}" friction="1.6" solref=".01 1"/>
      </default>
    </default>
  </default>
  <worldbody>
    <light directional="true" pos=".3 -.4 1.2" dir="-.25 .4 -1" castshadow="false"
      diffuse=".55 .55 .55" specular="0 0 0"/>
    <geom name="table" class="scenery" type="plane" size="1.2 1.2 .1" pos=".15 0 0" rgba=".74 .66 .55 1"/>
    {_room_xml()}
    <camera name="front" pos=".74 -.20 .42" xyaxes=".33 1 0 -.36 .12 .92" fovy="46"/>
    <camera name="top" pos=".19 0 .85" xyaxes="0 -1 0 1 0 0" fovy="40"/>
    <body name="base">
      {_geoms_xml(BASE_GEOMS, BASE_MASS_KG)}
      {_chain_xml(CHAIN)}
    </body>
    {_scene_xml() if scene else ""}
  </worldbody>
  <actuator>{actuators}</actuator>
</mujoco>
"""
