"""Rendering and torch in one process: Mesa's LLVM and triton's must not meet (see sim/rendering.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

RENDER_THEN_TRAIN = """
import mujoco
from sim.rendering import SceneRenderer

model = mujoco.MjModel.from_xml_string(
    "<mujoco><worldbody><light pos='0 0 3'/><geom size='.3'/>"
    "<camera name='c' pos='0 -2 0' xyaxes='1 0 0 0 0 1'/></worldbody></mujoco>"
)
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = SceneRenderer(model, 64, 64)
before = renderer.render(data, 0)
assert before.std() > 0

import torch, torchvision

layer = torch.nn.Linear(3, 3)
optimiser = torch.optim.AdamW(layer.parameters())
layer(torch.ones(2, 3)).sum().backward()
optimiser.step()
assert (renderer.render(data, 0) == before).all()
print("alive")
"""


def test_torch_trains_after_a_frame_was_rendered() -> None:
    # A process of its own: the crash is a segmentation fault, and needs torch imported after a first frame.
    run = subprocess.run(
        [sys.executable, "-c", RENDER_THEN_TRAIN], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert run.returncode == 0, f"exit {run.returncode}: {run.stderr[-2000:]}"
    assert run.stdout.strip() == "alive"


def test_a_frame_is_rendered_after_another_library_rendered_one() -> None:
    """dm_control's first frame loads Mesa's compiler; torch's must not be loaded on top of it."""
    program = f"""
from dm_control import suite
physics = suite.load("reacher", "hard").physics
assert physics.render(64, 64, camera_id=0).std() > 0
{RENDER_THEN_TRAIN.partition("import torch")[0]}
print("alive")
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True)
    assert run.returncode == 0, f"exit {run.returncode}: {run.stderr[-2000:]}"
    assert run.stdout.strip() == "alive"
