"""What poses of the arm would hit, asked over standard input and output: for a recorder without mujoco.

    python -m sim.obstacles [--mjcf FILE] [--clearance M]

The first line out is {"joints": [...], "limits": [[lower, upper], ...]} (rad). Each line in is
{"q": [[6 angles in rad], ...]} and is answered by {"blocked": [null | "table" | "arm", ...]}, or by
{"error": ...} when it is none. It ends when its input closes, and when its parent is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from typing import Any, TextIO

import numpy as np

from hardware.errors import InputError
from sim.so101 import SimArm


def answer(arm: SimArm, line: str, clearance_m: float = 0.0) -> dict[str, Any]:
    """The answer to one line."""
    try:
        request = json.loads(line)
        q = np.asarray(request["q"], float)
    except (ValueError, TypeError, KeyError) as error:
        return {"error": f"not understood: {error!r}"}
    if q.ndim != 2 or q.shape[1] != len(arm.joint_names):
        return {"error": f"q has shape {list(q.shape)}, not [n, {len(arm.joint_names)}]"}
    if not np.isfinite(q).all():
        return {"error": "q holds a number that is not finite"}
    return {"blocked": [arm.blocked(pose, clearance_m) for pose in q]}


def end_with_parent() -> None:
    """End this process soon after its parent, also where somebody else keeps its input open."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(0)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def serve(arm: SimArm, clearance_m: float, lines: TextIO, out: TextIO) -> None:
    """Answer line after line until there are no more."""
    hello = {"joints": list(arm.joint_names), "limits": arm.limits.tolist()}
    print(json.dumps(hello), file=out, flush=True)
    for line in lines:
        print(json.dumps(answer(arm, line, clearance_m)), file=out, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sim.obstacles", description="what poses would hit")
    parser.add_argument("--mjcf", help="a model of your own in place of ours")
    parser.add_argument("--clearance", type=float, default=0.0, metavar="M", help="metres to stay away")
    options = parser.parse_args(arguments)
    try:
        with SimArm(options.mjcf, views=()) as arm:
            serve(arm, options.clearance, sys.stdin, sys.stdout)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except (BrokenPipeError, KeyboardInterrupt):
        return 0  # whoever asked is gone
    return 0


if __name__ == "__main__":
    end_with_parent()
    sys.exit(main())
