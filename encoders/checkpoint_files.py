"""Checkpoints of others as tensors: which file of a folder it is, and reading it without running it.

A file is what torch.save wrote (`*.pt`, `*.pth`, `*.ckpt`) or safetensors. It is read by
`torch.load(weights_only=True)`, which runs nothing; a pickled network, which that refuses, is read only where
`trust_pickle` says so, by `encoders.pickled` in a process of its own. Nothing is taken from a file that is
larger than MAX_WEIGHT_BYTES, and no tensor that is larger than its file explains.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import subprocess
import sys
import tempfile
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from encoders import pickled
from encoders.checkpoints import CARD, MAX_WEIGHT_BYTES, read_tensors
from hardware.errors import InputError

SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors")
EPOCH = re.compile(r"(.*_epoch_)(\d{1,9})(\D*)")
PATIENCE_S = 300.0  # for the process that reads a pickle

Form = Literal["state dict", "safetensors", "pickled network"]


@dataclass(frozen=True)
class CheckpointFile:
    """The content of a checkpoint.

    Attributes
    ----------
    tensors : by their place in the file, such as `state_dict.model.predictor.pos_embedding`.
    passed_over : other files of the folder that could have been meant, in words; empty where there were none.
    """

    path: Path
    sha256: str
    form: Form
    tensors: dict[str, torch.Tensor]
    passed_over: str = ""


def read_checkpoint(path: Path, *, trust_pickle: bool = False) -> CheckpointFile:
    """Read a checkpoint, or the one of a folder (see `checkpoint_of`).

    Raises
    ------
    InputError : when it is missing, too large, damaged, no checkpoint, or a pickled object that is not
        trusted or asks for something that no LeWM needs.
    """
    path, passed_over = checkpoint_of(path)
    size = path.stat().st_size
    if size > MAX_WEIGHT_BYTES:
        raise InputError(path, f"is {size:,} bytes, more than the {MAX_WEIGHT_BYTES:,} allowed")
    with path.open("rb") as file:
        start = file.read(16)
    form: Form = "state dict"
    if path.suffix == ".safetensors":
        form, tensors = "safetensors", read_tensors(path)
    elif start.startswith(b"PK\x03\x04"):
        asked = _asked(path)
        if asked is None:
            tensors = _tensors(_loaded(path), path)
        elif not trust_pickle:
            raise _untrusted(path, asked)
        else:
            form, tensors = "pickled network", _unpickled(path)
    elif start.startswith(b"\x80"):  # torch.save before 1.6: pickles one after another, and no archive
        tensors = _tensors(_loaded(path), path)
    else:
        raise InputError(
            path, "is no checkpoint: neither torch.save nor safetensors wrote it", "name the file of weights"
        )
    return CheckpointFile(path, _sha256(path), form, tensors, passed_over)


def checkpoint_of(path: Path) -> tuple[Path, str]:
    """The checkpoint that a path means, and what was passed over for it.

    A file is itself. In a folder it is the only one; of `..._epoch_N...` the newest; and where a pickled
    `*_object.ckpt` lies beside a file of weights, the weights. InputError where that leaves none or several.
    """
    if path.is_file():
        return path, ""
    if not path.is_dir():
        raise InputError(path, "does not exist", "give a checkpoint, or the folder that holds one")
    if (path / CARD).is_file():
        raise InputError(
            path, "holds an encoder of our own", f"write {path} where a study or a verb wants it"
        )
    newest: dict[str, tuple[int, Path]] = {}
    files = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES and one.is_file())
    for file in files:
        match = EPOCH.fullmatch(file.name)
        series, epoch = (match[1] + match[3], int(match[2])) if match else (file.name, 0)
        newest[series] = max(newest.get(series, (-1, file)), (epoch, file))
    found = [file for _, file in newest.values()]
    weights = [file for file in found if not file.stem.endswith("_object")]
    found = weights or found
    if not found:
        raise InputError(path, f"holds no checkpoint ({', '.join(SUFFIXES)})", "name the file")
    if len(found) > 1:
        raise InputError(
            path,
            f"holds several: {', '.join(file.name for file in found[:10])}",
            "name the one that is meant",
        )
    others = [file.name for file in files if file != found[0]]
    return found[0], _some(others)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _asked(path: Path) -> list[str] | None:
    """What a file asks for beside tensors, or None where it holds tensors only."""
    names: list[str] = []
    try:
        with zipfile.ZipFile(path) as archive:
            _, data = pickled.document(archive)
        names = pickled.names_asked(data)
        unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(str(path))
        return names if unsafe else None
    except pickle.UnpicklingError:  # of a protocol that torch does not use: weights_only would refuse it too
        return names
    except pickled.Refused as error:
        raise InputError(path, str(error), "give the file as it was saved") from None
    except (zipfile.BadZipFile, RuntimeError, ValueError, EOFError, OSError, KeyError) as error:
        raise _damaged(path, error) from None


def _untrusted(path: Path, asked: list[str]) -> InputError:
    strange = [name for name in asked if not pickled.is_known(name)]
    if strange:
        return InputError(
            path,
            f"is a pickled object that asks for {_some(strange)}, which no LeWM needs",
            "it was not opened; get the weights alone (weights.pt)",
        )
    return InputError(
        path,
        "is a pickled object, not weights alone, and opening one runs what it says",
        f"if you know where it is from: jointprobe import {path} --trust-pickle --view NAME --to FOLDER "
        "takes its weights out",
    )


def _loaded(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about protocols it may not know: then it raises, too
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise InputError(
            path,
            "is no file of weights: torch refuses to open it safely",
            "get the weights alone (weights.pt)",
        ) from None
    except MemoryError:
        raise InputError(path, "asks for more memory than its size explains") from None
    except Exception as error:  # torch lets through whatever a damaged pickle raises
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> InputError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return InputError(path, f"is cut short or damaged ({lines[0][:120]})", "fetch it again")


def _tensors(thing: Any, path: Path) -> dict[str, torch.Tensor]:
    """Tensors in dicts and lists, by their place; each must be as large as it says."""
    tensors: dict[str, torch.Tensor] = {}
    left, visited = [("", thing, 0)], 0
    while left:
        name, thing, depth = left.pop()
        visited += 1
        if depth > pickled.MAX_DEPTH or visited > pickled.MAX_THINGS:
            raise InputError(
                path, "holds more than any checkpoint does", "get the weights alone (weights.pt)"
            )
        inside: Any = ()
        if isinstance(thing, torch.Tensor):
            plain = thing.layout is torch.strided and thing.device.type == "cpu" and not thing.is_quantized
            if not plain or thing.numel() * thing.element_size() > thing.untyped_storage().nbytes():
                raise InputError(path, f"{name} is no plain tensor", "save it as contiguous numbers")
            tensors[name] = thing.detach()
        elif isinstance(thing, dict):
            inside = thing.items()
        elif isinstance(thing, (list, tuple)):
            inside = enumerate(thing)
        for key, value in reversed(list(inside)):
            if isinstance(key, (str, int)):
                left.append((f"{name}.{key}" if name else str(key), value, depth + 1))
    return tensors


def _unpickled(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a pickled network, taken out by another process."""
    with tempfile.TemporaryDirectory(prefix="jointprobe-") as folder:
        target = Path(folder) / "tensors.safetensors"
        command = [sys.executable, "-I", pickled.__file__, str(path.absolute()), str(target)]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE_S,
                cwd=folder,
                env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
        except subprocess.TimeoutExpired:
            raise InputError(path, f"could not be read in {PATIENCE_S:.0f} s", "do not trust it") from None
        try:
            problem = json.loads(done.stdout or b"{}").get("error", "")
        except ValueError:
            problem = "made its reader say something else than it should"
        if done.returncode or problem:
            problem = problem or f"ended the process that read it (exit code {done.returncode})"
            raise InputError(path, problem, "do not trust it; get the weights alone (weights.pt)")
        return read_tensors(target)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
