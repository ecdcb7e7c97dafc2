"""What dm_control itself renders: python reacher_reference.py ANGLES.npy FRAMES.npy"""

from __future__ import annotations

import sys

import numpy as np


class Reference:
    """The published data's way to an image: the suite's environment, never reset, a render call a state."""

    def __init__(self) -> None:
        from dm_control import suite

        self.physics = suite.load("reacher", "hard").physics
        self.physics.named.model.geom_pos["target", :2] = (0.1, 0.1)

    def render(self, angles: np.ndarray) -> np.ndarray:
        """Images uint8 (N, 64, 64, 3) of angles (N, 2)."""
        frames = []
        for state in angles:
            self.physics.data.qpos[:] = state
            self.physics.forward()
            frames.append(self.physics.render(64, 64, camera_id=0))
        return np.stack(frames)


if __name__ == "__main__":
    np.save(sys.argv[2], Reference().render(np.load(sys.argv[1])))
