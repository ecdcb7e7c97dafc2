"""Where the files of published models lie: a folder, the hub's local cache, or the hub if it answers."""

from __future__ import annotations

import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import safetensors
import torch

from hardware.errors import InputError

PROCESSOR_FILES = ("video_preprocessor_config.json", "preprocessor_config.json")
"""Settings of the processor, of clips and of images; the first that is there counts."""
MODEL_FILES = (
    "config.json",
    *PROCESSOR_FILES,
    "model*.safetensors",
    "model.safetensors.index.json",
)
MAX_JSON_BYTES = 16 << 20
REACH_TIMEOUT_S = 5.0


class WeightsUnavailable(InputError):
    """Weights that are neither here nor to be had; a study may go on without an optional encoder."""


def model_folder(name: str) -> Path:
    """Folder that holds the files of a model: the one named, or a hub id's snapshot, fetched when it can be.

    The local cache comes first and needs no network. The hub is asked only when it answers within seconds and
    HF_HUB_OFFLINE is not set.
    """
    if Path(name).is_dir():
        folder = Path(name)
        lacking = _lacking_files(folder)
        if lacking:
            raise WeightsUnavailable(
                folder,
                f"lacks {lacking}",
                "give a folder made by save_pretrained of the model and its processor",
            )
        return folder
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or not name:
        raise InputError(f"encoder 'transformers:{name}'", "the folder does not exist", "check the path")
    import huggingface_hub
    from huggingface_hub import constants
    from huggingface_hub.errors import HFValidationError

    remedy = (
        f"run `huggingface-cli download {name}` where the hub can be reached, or name a folder with its files"
    )
    lacking = "is not in the local cache"
    try:
        cached = Path(
            huggingface_hub.snapshot_download(name, local_files_only=True, allow_patterns=list(MODEL_FILES))
        )
        missing = _lacking_files(cached)
        if not missing:
            return cached
        lacking = f"lacks {missing} in the local cache"
    except HFValidationError as error:
        raise InputError(
            f"encoder 'transformers:{name}'", f"is no hub id: {error}", "write OWNER/NAME"
        ) from None
    except OSError:  # LocalEntryNotFoundError is one
        pass
    if constants.HF_HUB_OFFLINE or os.environ.get("TRANSFORMERS_OFFLINE", "0") not in ("", "0"):
        raise WeightsUnavailable(f"weights of {name}", f"{lacking}, and offline mode is set", remedy)
    if not _reachable(constants.ENDPOINT):
        raise WeightsUnavailable(f"weights of {name}", f"{lacking}, and the hub cannot be reached", remedy)
    try:
        fetched = Path(
            huggingface_hub.snapshot_download(
                name, allow_patterns=list(MODEL_FILES), etag_timeout=REACH_TIMEOUT_S
            )
        )
    except Exception as error:  # the hub's own errors, and those of whichever HTTP library it uses
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise WeightsUnavailable(
            f"weights of {name}", f"{lacking}, and the hub says: {reason}", remedy
        ) from None
    missing = _lacking_files(fetched)
    if missing:
        raise WeightsUnavailable(
            f"weights of {name}",
            f"the hub's copy lacks {missing}",
            "pickled weights are not read; convert them",
        )
    return fetched


def processor_file(folder: Path) -> Path:
    """The processor's settings in a model's folder; the file may be missing."""
    found = [folder / name for name in PROCESSOR_FILES if (folder / name).is_file()]
    return found[0] if found else folder / PROCESSOR_FILES[-1]


def stored_tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors as the safetensors files of a folder hold them, by rising name, one in memory at a time."""
    where: dict[str, Path] = {}
    for path in _weight_files(folder):
        with safetensors.safe_open(path, framework="pt") as file:
            where |= {name: path for name in file.keys()}  # noqa: SIM118  safe_open is no mapping
    for name in sorted(where):
        with safetensors.safe_open(where[name], framework="pt") as file:
            yield name, file.get_tensor(name)


def read_json(path: Path, drop: Sequence[str] = ()) -> dict[str, Any]:
    """A JSON object of bounded size, without some of its keys."""
    if path.stat().st_size > MAX_JSON_BYTES:
        raise InputError(path, f"is larger than the {MAX_JSON_BYTES:,} bytes allowed")
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InputError(path, "is not a JSON object")
    return {key: value for key, value in data.items() if key not in drop}


def _reachable(endpoint: str) -> bool:
    """Whether the hub answers at all; in a thread of its own, since looking up a name has no timeout."""
    answered = threading.Event()

    def ask() -> None:
        try:
            request = urllib.request.Request(endpoint, method="HEAD")
            urllib.request.urlopen(request, timeout=REACH_TIMEOUT_S).close()
        except urllib.error.HTTPError:
            pass  # an error page is an answer
        except (OSError, ValueError):
            return
        answered.set()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(REACH_TIMEOUT_S)
    return answered.is_set()


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(read_json(index).get("weight_map", {}).values()))
        bad = [name for name in names if Path(name).name != name]
        if bad:
            raise InputError(index, f"names files outside its folder: {bad[0]!r}")
        return [folder / name for name in names]
    return [folder / "model.safetensors"]


def _lacking_files(folder: Path) -> str:
    needed = [folder / "config.json", processor_file(folder), *_weight_files(folder)]
    return ", ".join(path.name for path in needed if not path.is_file())
