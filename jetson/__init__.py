"""What a Jetson Orin NX next to the arm needs, and nothing that a workstation must have.

The room for the doctor (is this board fit to record and probe?), power metering, ONNX and TensorRT
export, the container and the service unit. It may import `hardware` and `encoders`.
Nothing is in it yet: the board runs the same commands as a workstation.
"""

from __future__ import annotations

__all__: list[str] = []
