"""Headless OpenGL for MuJoCo scenes: one context, one image size, RGB uint8 out.

Shadows, reflections, the sky and multisampling are off: with software rendering (llvmpipe) they cost ten
times the frame itself. MuJoCo reads ``MUJOCO_GL`` (egl, osmesa, glfw); without it and without a display this
module takes EGL.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import os
import sys
from pathlib import Path

import numpy as np

from hardware.errors import InputError


def _load_mujoco_without_opengl() -> None:
    """Import mujoco where MUJOCO_GL names a backend whose library is missing, which stops its import.

    The physics needs none; who renders is told what is missing.
    """
    backend = os.environ.pop("MUJOCO_GL", None)
    os.environ["MUJOCO_GL"] = "disable"
    try:
        importlib.import_module("mujoco")
    finally:
        del os.environ["MUJOCO_GL"]
        if backend is not None:
            os.environ["MUJOCO_GL"] = backend


try:
    import mujoco
except (AttributeError, ImportError, OSError):
    _load_mujoco_without_opengl()
    import mujoco

# Frames this small leave llvmpipe's threads nothing to share: without them a frame takes 30 % less time.
_SMALL_IMAGE_PIXELS = 160 * 160
_OFF = (
    mujoco.mjtRndFlag.mjRND_SHADOW,
    mujoco.mjtRndFlag.mjRND_REFLECTION,
    mujoco.mjtRndFlag.mjRND_SKYBOX,
    mujoco.mjtRndFlag.mjRND_FOG,
    mujoco.mjtRndFlag.mjRND_HAZE,
)
_REMEDY = (
    "apt-get install libegl1 libopengl0 libgl1-mesa-dri (or set MUJOCO_GL=osmesa or glfw to use another one)"
)


def choose_backend() -> str:
    """The name of the OpenGL backend, `MUJOCO_GL` being set to it where it was unset on a machine without a
    display.
    """
    backend = os.environ.get("MUJOCO_GL", "").lower().strip()
    if not backend:
        headless = sys.platform.startswith("linux") and not os.environ.get("DISPLAY")
        backend = "egl" if headless else "cgl" if sys.platform == "darwin" else "glfw"
        if headless:
            os.environ["MUJOCO_GL"] = backend
    if backend not in ("egl", "osmesa", "glfw", "cgl"):
        raise InputError(
            "MUJOCO_GL", f"names no OpenGL backend: {backend!r}", "unset it, or use egl, osmesa or glfw"
        )
    return backend


def _load_triton_first() -> None:
    """Loads the compiler that comes with torch, where it is installed (30 ms), before Mesa loads its own
    LLVM.

    Both bring one, Mesa's becomes global, and a triton loaded after it binds to the wrong one: torch then
    ends the process with a segmentation fault, in the first optimiser or the first import of torchvision
    after a frame was rendered.
    """
    if _is_mapped("libLLVM"):  # Mesa was first already: a second one now would end the process at once
        return
    triton = importlib.util.find_spec("triton")
    for folder in (triton.submodule_search_locations or []) if triton else []:
        with contextlib.suppress(OSError):  # another layout: then there is nothing to protect
            ctypes.CDLL(str(Path(folder) / "_C" / "libtriton.so"))


def _is_mapped(library: str) -> bool:
    """Whether this process has loaded a library of this name; False where that cannot be told."""
    try:
        maps = Path("/proc/self/maps").read_text("utf-8", errors="replace")
    except OSError:
        return False
    return f"/{library}" in maps


def open_context(width: int, height: int):
    """A current OpenGL context of MuJoCo's own; however a missing library shows, it is one error."""
    backend = choose_backend()
    _load_triton_first()
    try:
        context = importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
        context.make_current()
    except (
        Exception
    ) as error:  # PyOpenGL raises AttributeError, ImportError, OSError or its own, by what is missing
        raise InputError(
            f"OpenGL ({backend})", f"no context for rendering without a window: {error}", _REMEDY
        ) from error
    return context


class SceneRenderer:
    """Renders cameras of one model at one size.

    Parameters
    ----------
    model : the compiled model; its offscreen buffer is set to the image size.
    width, height : of the images, in pixels.

    Raises
    ------
    InputError : when no OpenGL context can be made, with the packages to install.
    """

    def __init__(self, model: mujoco.MjModel, width: int, height: int) -> None:
        model.vis.global_.offwidth, model.vis.global_.offheight = width, height
        model.vis.quality.offsamples = 0
        if width * height <= _SMALL_IMAGE_PIXELS:
            os.environ.setdefault("LP_NUM_THREADS", "0")
        self._model = model
        self._gl = open_context(width, height)
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._scene = mujoco.MjvScene(model=model, maxgeom=model.ngeom + model.nsite + 100)
        for flag in _OFF:
            self._scene.flags[flag] = 0
        self._option = mujoco.MjvOption()
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED.value
        self._rectangle = mujoco.MjrRect(0, 0, width, height)
        self._upside_down = np.empty((height, width, 3), np.uint8)

    def render(self, data: mujoco.MjData, camera_id: int) -> np.ndarray:
        """The image of a camera, RGB uint8 of shape (height, width, 3); positions in `data` must be up to
        date.
        """
        try:
            self._gl.make_current()
        except ctypes.ArgumentError as error:  # Ctrl-C amid the conversion of an argument comes out as this
            if "KeyboardInterrupt" in str(error):
                raise KeyboardInterrupt from None
            raise
        self._camera.fixedcamid = camera_id
        mujoco.mjv_updateScene(
            self._model, data, self._option, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL.value, self._scene
        )
        mujoco.mjr_render(self._rectangle, self._scene, self._context)
        mujoco.mjr_readPixels(self._upside_down, None, self._rectangle, self._context)
        return self._upside_down[::-1].copy()  # OpenGL's first row is the lowest

    def close(self) -> None:
        """Free the OpenGL context; a second call does nothing."""
        if self._gl is not None:
            self._gl.make_current()
            self._context.free()
            self._gl.free()
            self._gl = None
