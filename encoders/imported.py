"""Encoders of the user's own: anything that a Python factory returns."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from encoders.encoder import Encoder, check_views, common_size, prepare_frames
from hardware.errors import InputError


class ImportedEncoder(Encoder):
    """An encoder of the user's own, named `import:MODULE:FACTORY` (MODULE may be the path of a .py file).

    `FACTORY()` returns an object with `encode(frames) -> (B, D)`, or a callable that does the same: frames
    are uint8 (B, V, H, W, 3), RGB, as recorded (or at its `image_size`); the result is an array or a
    tensor, D the same for every batch, views concatenated as it likes. Optional attributes: `width` (D,
    else tried on a grey frame), `image_size` (height, width), `views` (names it insists on), `fingerprint`
    (any text; hashed as it is).

    The fingerprint covers, first that applies: the attribute `fingerprint`; for a torch module its state
    dict and its source file, since preprocessing lives there; else the source file alone, and `describe`
    says so.
    """

    kind = "import"

    def __init__(
        self,
        spec: str,
        *,
        views: Sequence[str] | None,
        image_shapes: Mapping[str, tuple[int, int]] | None = None,
        base: str | Path | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        where = f"encoder 'import:{spec}'"
        self.spec = spec
        module, self.object = _made_by_factory(spec, where, base)
        encode = getattr(self.object, "encode", None) or self.object
        if not callable(encode):
            raise InputError(
                where, "returns neither an object with encode(frames) nor a callable", self._contract
            )
        self._encode = encode
        wanted = getattr(self.object, "views", None)
        if wanted is not None and views is not None and tuple(wanted) != tuple(views):
            raise InputError(where, f"insists on the views {tuple(wanted)}, asked for {tuple(views)}")
        self.views = check_views(views or wanted, where)
        size = getattr(self.object, "image_size", None)
        self.image_size = (int(size[0]), int(size[1])) if size else common_size(self.views, image_shapes)
        own = getattr(self.object, "fingerprint", None)
        self._module = self.object if isinstance(self.object, torch.nn.Module) else None
        name, _, factory = spec.rpartition(":")
        # a file's name and not its path: the same encoder has the same fingerprint elsewhere
        self.architecture = {"module": Path(name).stem if name.endswith(".py") else name, "factory": factory}
        self.preprocessing = {"image_size": None if self.image_size is None else list(self.image_size)}
        if own is not None:
            self.fingerprint_covers = "its own attribute fingerprint"
            self.architecture["own_fingerprint"] = str(own)
        else:
            self.preprocessing["source_sha256"] = _source_sha256(module, where)
            self.fingerprint_covers = "the module's source file" + (
                " and the state dict" if self._module else ""
            )
        if self._module is not None:
            self._module.eval()
        self.to(device)
        declared = getattr(self.object, "width", None)
        self.width = 0 if declared is None else int(declared)
        if not self.width:
            self.width = self._tried_width(image_shapes)

    _contract = "FACTORY() must return an object with encode(frames uint8 [B, V, H, W, 3]) -> [B, D]"

    def _tried_width(self, image_shapes: Mapping[str, tuple[int, int]] | None) -> int:
        assert self.views is not None
        size = self.image_size or (image_shapes or {}).get(self.views[0], (64, 64))
        return self.encode(np.full((2, len(self.views), *size, 3), 127, np.uint8)).shape[1]

    def to(self, device: torch.device | str) -> ImportedEncoder:
        """Move a torch module; other objects stay where they are."""
        if self._module is not None:
            self._module.to(device)
        return self

    def tensors(self) -> Iterable[tuple[str, torch.Tensor]]:
        """State dict of a torch module without a fingerprint of its own, else nothing."""
        if self._module is None or "own_fingerprint" in self.architecture:
            return []
        return sorted(self._module.state_dict().items())

    def describe(self) -> dict[str, Any]:
        """Facts of every encoder, and what its fingerprint rests on."""
        return {**super().describe(), "source": self.spec, "fingerprint_covers": self.fingerprint_covers}

    def encode(self, frames: np.ndarray) -> np.ndarray:
        """Latents float32 (B, D) of uint8 frames (B, V, H, W, 3)."""
        assert self.views is not None
        frames = prepare_frames(frames, len(self.views), self.image_size)
        try:
            with torch.inference_mode():
                found = self._encode(frames)
        except InputError:
            raise
        except (Exception, SystemExit) as error:  # the user's own code: anything can come
            raise InputError(
                f"encoder 'import:{self.spec}'",
                f"encode failed: {type(error).__name__}: {error}",
                self._contract,
            ) from error
        latents = (
            found.detach().float().cpu().numpy() if isinstance(found, torch.Tensor) else np.asarray(found)
        )
        if latents.ndim != 2 or len(latents) != len(frames) or latents.dtype.kind not in "fiu":
            raise InputError(
                f"encoder 'import:{self.spec}'",
                f"gave {latents.dtype} {latents.shape} for {len(frames)} frames",
                self._contract,
            )
        if getattr(self, "width", 0) and latents.shape[1] != self.width:
            raise InputError(
                f"encoder 'import:{self.spec}'",
                f"gave {latents.shape[1]} dimensions, its width is {self.width}",
            )
        return np.ascontiguousarray(latents, np.float32)


def _made_by_factory(spec: str, where: str, base: str | Path | None) -> tuple[Any, Any]:
    name, _, factory = spec.rpartition(":")
    if not name or not factory:
        raise InputError(where, "names no factory", "write import:MODULE:FACTORY")
    try:
        module = _import_file(Path(base or ".") / name) if name.endswith(".py") else _import_name(name)
    except (Exception, SystemExit) as error:
        raise InputError(
            where,
            f"cannot be imported: {type(error).__name__}: {error}",
            "install it, or name the path of a .py file",
        ) from error
    make = getattr(module, factory, None)
    if not callable(make):
        raise InputError(
            where, f"the module has no callable {factory!r}", "name a function without parameters"
        )
    try:
        return module, make()
    except InputError:
        raise
    except (
        Exception,
        SystemExit,
    ) as error:  # the user's own code: anything can come, and a traceback would hide which encoder
        raise InputError(where, f"{factory}() failed: {type(error).__name__}: {error}") from error


def _import_name(name: str) -> Any:
    """Import by dotted name, from the working directory too, as `python -m` would."""
    here = os.getcwd()
    sys.path.append(here)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(here)


def _import_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"jointprobe_imported_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise OSError(f"{path} is not a file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickles look their module up there
    spec.loader.exec_module(module)
    return module


def _source_sha256(module: Any, where: str) -> str:
    source = getattr(module, "__file__", None)
    if not source or not Path(source).is_file():
        raise InputError(where, "has no source file to hash", "give the object an attribute fingerprint")
    return hashlib.sha256(Path(source).read_bytes()).hexdigest()
