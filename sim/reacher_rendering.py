"""Images of the Reacher as dm_control renders them, byte for byte, several times faster.

The reference: `suite.load("reacher", "hard")`, never reset (a reset would shrink the target from the radius
of 0.05 that the model's file gives it), the target moved to (0.1, 0.1), the angles set, `physics.forward()`,
`physics.render(64, 64, camera_id=0)`.

What is left out changes no pixel: a scene made anew for each image, geoms that do not move, the 640x480
buffer, the sky (hidden by the arena) and the walls' shadows (the ground must cast its own: without it one
pixel in 3,000 images differs). And of the 2048x2048 shadow map only the part around the arm, where it was and
where it is, is cleared and drawn again: the rest is what it was.

MuJoCo offers no such limit, but it draws a geom by calling an OpenGL display list, pass after pass in a fixed
order, and a list may hold a command that draws nothing. Three geoms without a shape set the scissor box for
the shadow map's pass alone. A renderer compares some images with and without them when it is opened, and does
without where they differ, as they would under a MuJoCo that draws in another order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from hardware.errors import InputError
from sim.reacher import FINGER_RADIUS_M, fingertip, load_model, wrist_position
from sim.rendering import mujoco, open_context

SIDE = 64
TARGET_M = (0.1, 0.1)
FRAME_BYTES = SIDE * SIDE * 3

_MOVING = ("arm", "hand", "finger")
_ARM_TOP_M = 2 * FINGER_RADIUS_M  # links and finger lie on the ground
_SLACK_M = 0.003
_SLACK_TEXELS = 3
_TRIALS = 12


class ReacherRenderer:
    """One OpenGL context that renders states; one thread owns it.

    Parameters
    ----------
    limit_shadows : draw the shadow map around the arm only; the images are the same.

    Attributes
    ----------
    limits_shadows : whether it does.

    Raises
    ------
    InputError : dm_control or OpenGL is missing, with what to install.
    """

    def __init__(self, *, limit_shadows: bool = True) -> None:
        # One tile of an image leaves llvmpipe's threads nothing to share; processes share images instead.
        os.environ.setdefault("LP_NUM_THREADS", "0")
        self._model = load_model()
        self._model.geom("target").pos[:2] = TARGET_M
        self._model.vis.global_.offwidth = self._model.vis.global_.offheight = SIDE
        self._data = mujoco.MjData(self._model)
        mujoco.mj_forward(self._model, self._data)
        self._gl: Any = open_context(SIDE, SIDE)
        self._context = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._rectangle = mujoco.MjrRect(0, 0, SIDE, SIDE)
        self._upside_down = np.empty((SIDE, SIDE, 3), np.uint8)
        self._limit: _ShadowLimit | None = None
        self._scene = self._new_scene(None)
        if limit_shadows:
            self._try_limit()

    @property
    def limits_shadows(self) -> bool:
        """Whether the shadow map is drawn around the arm only."""
        return self._limit is not None

    def render(self, angles: np.ndarray) -> np.ndarray:
        """Images of states.

        Parameters
        ----------
        angles : (N, 2), rad; the wrist may be beyond its limit.

        Returns
        -------
        uint8 (N, 64, 64, 3), RGB.
        """
        angles = require_angles(angles)
        self._gl.make_current()
        frames = np.empty((len(angles), SIDE, SIDE, 3), np.uint8)
        boxes = self._limit.boxes(angles) if self._limit else [None] * len(angles)
        for frame, state, box in zip(frames, angles, boxes):
            self._data.qpos[:] = state
            mujoco.mj_kinematics(self._model, self._data)
            for number, geom in self._moving:
                geom.pos[:] = self._data.geom_xpos[number]
                geom.mat[:] = self._data.geom_xmat[number].reshape(3, 3)
            if self._limit is not None and box is not None:
                self._limit.set(box)
            mujoco.mjr_render(self._rectangle, self._scene, self._context)
            mujoco.mjr_readPixels(self._upside_down, None, self._rectangle, self._context)
            frame[:] = self._upside_down[::-1]  # OpenGL's first row is the lowest
        return frames

    def description(self) -> dict[str, str]:
        """What decides the images' bytes: OpenGL's renderer and version, MuJoCo's and dm_control's."""
        from importlib.metadata import version

        from OpenGL import GL

        self._gl.make_current()
        return {
            "renderer": "dm_control's images, 64x64, camera 0, target of radius 0.05 at (0.1, 0.1)",
            "opengl": f"{GL.glGetString(GL.GL_RENDERER).decode()}; {GL.glGetString(GL.GL_VERSION).decode()}",
            "mujoco": mujoco.__version__,
            "dm_control": version("dm_control"),
        }

    def close(self) -> None:
        """Free the OpenGL context; a second call does nothing."""
        if self._gl is not None:
            self._gl.make_current()
            self._context.free()
            self._gl.free()
            self._gl = None

    def __enter__(self) -> ReacherRenderer:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _new_scene(self, limit: _ShadowLimit | None) -> mujoco.MjvScene:
        """The geoms in MuJoCo's order, between those of `limit`."""
        scene = mujoco.MjvScene(model=self._model, maxgeom=self._model.ngeom + 10)
        option, camera = mujoco.MjvOption(), mujoco.MjvCamera()
        camera.type, camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED.value, 0
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self._model, self._data, option, None, camera, everything, scene)
        if limit is not None:
            scene.ngeom = 0
            limit.add_first(scene)
            mujoco.mjv_addGeoms(self._model, self._data, option, mujoco.MjvPerturb(), everything, scene)
            limit.add_last(scene)
        scene.flags[mujoco.mjtRndFlag.mjRND_SKYBOX] = 0
        geoms = [geom for geom in scene.geoms[: scene.ngeom] if geom.objtype == mujoco.mjtObj.mjOBJ_GEOM]
        by_name = {self._model.geom(geom.objid).name: geom for geom in geoms}
        for name, geom in by_name.items():
            if name.startswith("wall"):
                geom.category = mujoco.mjtCatBit.mjCAT_DECOR.value  # casts no shadow
        self._moving = [(self._model.geom(name).id, by_name[name]) for name in _MOVING]
        return scene

    def _try_limit(self) -> None:
        """Limit the shadow map's pass where that changes no image."""
        trials = np.random.default_rng(0).normal(0, 1.5, (_TRIALS, 2))
        expected = self.render(trials)
        try:
            self._limit = _ShadowLimit(self._scene, self._context)
        except Exception:  # another light, no PyOpenGL, or what PyOpenGL says of an OpenGL that lacks a call
            return
        self._scene = self._new_scene(self._limit)
        if not np.array_equal(self.render(trials), expected):
            self._limit = None
            self._scene = self._new_scene(None)


class _ShadowLimit:
    """Three geoms without a shape, whose display lists set and lift the scissor box.

    MuJoCo draws the reflection, the scene itself, the shadow map (which it clears first) and the scene in
    that light; decorations are left out of the map. So the opaque geom that comes last sets the box before
    the map is cleared, and the one that comes first lifts it when the map is done. The last one also follows
    the other passes: after the reflection, and at the end, the transparent one, which is drawn behind all
    opaque ones there, lifts what it set.
    """

    def __init__(self, scene: mujoco.MjvScene, context: mujoco.MjrContext) -> None:
        from OpenGL import GL

        self._gl = GL
        lights = [light for light in scene.lights[: scene.nlight] if light.castshadow]
        straight_down = len(lights) == 1 and np.array_equal(lights[0].dir, [0, 0, -1])
        if not straight_down or np.any(lights[0].pos[:2]):
            raise ValueError("not one light straight above the shoulder")
        self._size = int(context.shadowSize)
        self._light_m = float(lights[0].pos[2])
        half_angle = np.deg2rad(min(float(lights[0].cutoff) * float(context.shadowScale), 80))
        # Of the map's inner pixels, a border of one left out, for one metre on the ground.
        self._texels_per_m = (self._size - 2) / 2 / (self._light_m * np.tan(half_angle))
        self._base = int(context.baseMesh)  # a mesh geom draws the list of this number plus its own
        self._set, self._lift = (int(GL.glGenLists(1)) for _ in range(2))
        GL.glNewList(self._lift, GL.GL_COMPILE)
        GL.glDisable(GL.GL_SCISSOR_TEST)
        GL.glEndList()
        self.set((0, 0, self._size, self._size))

    def boxes(self, angles: np.ndarray) -> Sequence[tuple[int, int, int, int]]:
        """For each image (left, bottom, right, top) of what changes in the map, in pixels; all of it in the
        first.
        """
        corners = np.stack([np.zeros((len(angles), 2)), wrist_position(angles), fingertip(angles)])
        grown = self._light_m / (self._light_m - _ARM_TOP_M)  # the shadow of what lies that high
        reach = FINGER_RADIUS_M + _SLACK_M
        low, high = (corners.min(axis=0) - reach) * grown, (corners.max(axis=0) + reach) * grown
        low = np.floor(self._size / 2 + low * self._texels_per_m) - _SLACK_TEXELS
        high = np.ceil(self._size / 2 + high * self._texels_per_m) + _SLACK_TEXELS
        low[1:], high[1:] = np.minimum(low[1:], low[:-1]), np.maximum(high[1:], high[:-1])
        low[:1], high[:1] = 0, self._size
        return np.concatenate([low, high], axis=1).astype(int).tolist()

    def set(self, box: Sequence[int]) -> None:
        """Draw the map within `box` from the next image on."""
        left, bottom, right, top = box
        self._gl.glNewList(self._set, self._gl.GL_COMPILE)
        self._gl.glScissor(left, bottom, right - left, top - bottom)
        self._gl.glEnable(self._gl.GL_SCISSOR_TEST)
        self._gl.glEndList()

    def add_first(self, scene: mujoco.MjvScene) -> None:
        """Before all geoms: lifts the box, opaque."""
        self._add(scene, self._lift, 1.0)

    def add_last(self, scene: mujoco.MjvScene) -> None:
        """Behind all geoms: sets the box, opaque; and lifts it, transparent."""
        self._add(scene, self._set, 1.0)
        self._add(scene, self._lift, 0.5)

    def _add(self, scene: mujoco.MjvScene, display_list: int, alpha: float) -> None:
        geom = scene.geoms[scene.ngeom]
        mujoco.mjv_initGeom(
            geom,
            mujoco.mjtGeom.mjGEOM_MESH.value,
            np.full(3, 1e-3),
            np.zeros(3),
            np.eye(3).ravel(),
            np.array([0, 0, 0, alpha], np.float32),
        )
        geom.category = mujoco.mjtCatBit.mjCAT_DECOR.value
        geom.objtype, geom.objid = mujoco.mjtObj.mjOBJ_UNKNOWN.value, -1
        geom.modelrbound = 1e-3
        geom.dataid = display_list - self._base
        scene.ngeom += 1


def require_angles(angles: np.ndarray) -> np.ndarray:
    """The states as float64 (N, 2); InputError where they are of another shape or not finite."""
    states = np.ascontiguousarray(angles, np.float64)
    if states.ndim != 2 or states.shape[1] != 2:
        raise InputError("states", f"have shape {states.shape}, expected (N, 2)", "give angles in rad")
    if not np.isfinite(states).all():
        row = int(np.flatnonzero(~np.isfinite(states).all(axis=1))[0])
        raise InputError("states", f"are not finite in row {row}", "give angles in rad")
    return states
