"""Takes the tensors out of a pickled network without running anything that the file asks for.

A pickle names functions and classes, and opening it calls them: a stranger's pickle is a stranger's program.
Here no name leads to what it names. Those that a pickled LeWM holds lead to empty shells (`Shell`) that keep
their attributes, those that make tensors to `rebuilt_tensor`, and every other name ends the reading.

    python -I pickled.py SOURCE TARGET

writes the tensors of SOURCE (what torch.save made of a network, or of dicts with networks or tensors in them)
to TARGET, a safetensors file, under the names that `state_dict` would give them. It runs in a process of its
own (`encoders.checkpoint_files` starts it), with limits on memory, time and size, imports neither torch nor
transformers, and while it unpickles every attempt to open, connect or start anything is refused
(`only_unpickling`). What it has to say goes to standard output, one JSON object: `{}`, or `{"error": ...}`
and exit code 1.
"""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import re
import resource
import struct
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

SECONDS = 120  # of computing
MEMORY_BESIDE = 1 << 30  # bytes, beside three times the file
MAX_DEPTH = 60  # of modules within modules, or dicts within dicts
MAX_THINGS = 200_000  # modules, dicts and values visited: the same dict twice in itself doubles at each level

# torch's storage classes: the name of the type in safetensors, and bytes of one number
STORAGES = {
    "DoubleStorage": ("F64", 8),
    "FloatStorage": ("F32", 4),
    "HalfStorage": ("F16", 2),
    "BFloat16Storage": ("BF16", 2),
    "LongStorage": ("I64", 8),
    "IntStorage": ("I32", 4),
    "ShortStorage": ("I16", 2),
    "CharStorage": ("I8", 1),
    "ByteStorage": ("U8", 1),
    "BoolStorage": ("BOOL", 1),
}

# MODULE.NAME of classes, and of functions kept as attributes, that become shells
SHELLS = re.compile(
    r"jepa\.\w+|module\.\w+"
    r"|stable_worldmodel\.wm(\.\w+)*|stable_pretraining(\.\w+)*"
    r"|transformers\.models\.vit\.(modeling|configuration)_vit\.\w+|transformers\.activations\.\w+"
    r"|torch\.nn\.modules(\.\w+)+|torch\._C\._nn\.(gelu|silu)|torch\.nn\.functional\.(gelu|silu)"
    r"|torch\.(float64|float32|float16|bfloat16|int64|device|Size)"
    r"|omegaconf(\.\w+)+|lightning(\.\w+)+|pytorch_lightning(\.\w+)+|typing\.Any",
    re.ASCII,
)


class Refused(Exception):
    """Why a file is not read on."""


class Shell:
    """Stands for an object whose class is not loaded; `state` is what the file says its attributes are."""

    state: dict[str, Any]

    def __new__(cls, *_arguments: Any, **_options: Any) -> Shell:
        shell = object.__new__(cls)
        shell.state = {}
        return shell

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state if isinstance(state, dict) else {}

    def __setitem__(self, key: Any, value: Any) -> None:  # of classes that are dicts
        self.state[key] = value

    def append(self, value: Any) -> None:  # of classes that are lists
        self.state[str(len(self.state))] = value


@dataclass(frozen=True)
class Storage:
    """Numbers in the file: the entry `key`, `count` of them, of a type in safetensors' name."""

    dtype: str
    itemsize: int
    key: str
    count: int


@dataclass(frozen=True)
class Tensor:
    """A view of a storage; offset and strides in numbers."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def rebuilt_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_rest: Any) -> Tensor:
    """What torch._utils._rebuild_tensor_v2 stands for."""
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, Storage) or not all(type(n) is int and n >= 0 for n in numbers):
        raise Refused("holds a tensor that is none")
    return Tensor(storage, offset, tuple(shape), tuple(strides))


def rebuilt_parameter(data: Any, *_rest: Any) -> Any:
    """What torch._utils._rebuild_parameter stands for: the tensor of the parameter."""
    return data


FUNCTIONS = {
    "torch._utils._rebuild_tensor_v2": rebuilt_tensor,
    "torch._utils._rebuild_parameter": rebuilt_parameter,
    "torch._utils._rebuild_parameter_with_state": rebuilt_parameter,
    "collections.OrderedDict": OrderedDict,
    "collections.defaultdict": Shell,
    "builtins.set": set,
    "builtins.dict": dict,
    "builtins.list": list,
    "builtins.int": int,
}


def names_asked(data: bytes) -> list[str]:
    """MODULE.NAME of what a pickle asks for, found without unpickling, as far as it can be told that way."""
    names: set[str] = set()
    texts: list[str] = []
    try:
        for operation, argument, _ in pickletools.genops(data):
            if operation.name in ("GLOBAL", "INST"):
                names.add(_old_name(*str(argument).split(" ", 1)))
            elif operation.name == "STACK_GLOBAL":
                names.add(".".join(texts[-2:]))
            elif isinstance(argument, str):
                texts.append(argument)
    except Exception:  # a pickle that is damaged on purpose raises whatever it likes
        pass
    return sorted(names)


def is_known(name: str) -> bool:
    """Whether a pickled LeWM may ask for MODULE.NAME."""
    module, _, last = name.rpartition(".")
    return name in FUNCTIONS or (module == "torch" and last in STORAGES) or bool(SHELLS.fullmatch(name))


def _old_name(module: str, name: str = "") -> str:
    """MODULE.NAME; Python 2 called its builtins __builtin__, and torch still writes that."""
    return f"{'builtins' if module == '__builtin__' else module}.{name}"


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        full = _old_name(module, name)
        if not is_known(full):
            raise Refused(f"asks for {full[:80]}, which no LeWM needs")
        if full in FUNCTIONS:
            return FUNCTIONS[full]
        if name in STORAGES:
            return STORAGES[name]
        return type(name, (Shell,), {})

    def persistent_load(self, reference: Any) -> Storage:
        match reference:
            case ("storage", (str(dtype), int(itemsize)), str(key), _, int(count)) if count >= 0:
                return Storage(dtype, itemsize, key, count)
        raise Refused("refers to something outside that is no storage")


def document(archive: zipfile.ZipFile) -> tuple[str, bytes]:
    """The name of the archive's folder, and its pickle."""
    name = next((one for one in archive.namelist() if re.fullmatch(r"[^/]+/data\.pkl", one)), None)
    if name is None:
        raise Refused("is a zip archive, but not one that torch.save wrote")
    packed = [one.filename for one in archive.infolist() if one.compress_type != zipfile.ZIP_STORED]
    if packed:
        raise Refused(f"holds {packed[0][:80]!r} compressed, as torch.save never does")
    return name.partition("/")[0], archive.read(name)


def tensors_of(thing: Any) -> dict[str, Tensor]:
    """Tensors by the names that state_dict would give them, in networks, dicts and lists."""
    tensors: dict[str, Tensor] = {}
    left, visited = [("", thing, 0)], 0
    while left:
        name, thing, depth = left.pop()
        visited += 1
        if depth > MAX_DEPTH or visited > MAX_THINGS:
            raise Refused("is nested deeper, or larger, than any network")
        if isinstance(thing, Tensor):
            tensors[name] = thing
        for key, value in reversed(list(_inside(thing))):
            left.append((f"{name}.{key}" if name else str(key), value, depth + 1))
    return tensors


def _inside(thing: Any) -> Iterator[tuple[str | int, Any]]:
    """What lies in a network (parameters, buffers that are saved, modules), a dict or a list, by its key."""
    if isinstance(thing, Shell):
        passing = thing.state.get("_non_persistent_buffers_set") or ()
        for part in ("_parameters", "_buffers", "_modules"):
            found = thing.state.get(part)
            if isinstance(found, dict):
                yield from ((key, value) for key, value in found.items() if key not in passing)
    elif isinstance(thing, dict):
        yield from ((key, value) for key, value in thing.items() if isinstance(key, (str, int)))
    elif isinstance(thing, (list, tuple)):
        yield from enumerate(thing)


def numbers_of(tensor: Tensor, archive: zipfile.ZipFile, folder: str) -> bytes:
    """The bytes of a tensor in C order."""
    import numpy as np

    storage = tensor.storage
    entry = f"{folder}/data/{storage.key}"
    if (
        entry not in archive.NameToInfo
        or archive.NameToInfo[entry].file_size != storage.count * storage.itemsize
    ):
        raise Refused(f"lacks the numbers of a tensor ({entry[:80]})")
    shape, strides = tensor.shape, tensor.strides
    count = prod(shape)
    last = tensor.offset + sum((size - 1) * step for size, step in zip(shape, strides))
    if len(shape) != len(strides) or count > storage.count or (count and last >= storage.count):
        raise Refused("holds a tensor that reaches past its numbers")
    flat = np.frombuffer(archive.read(entry), dtype=f"V{storage.itemsize}")
    steps = [step * storage.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(flat[tensor.offset :], shape, steps).tobytes()


def write_safetensors(
    tensors: dict[str, Tensor], archive: zipfile.ZipFile, folder: str, target: BinaryIO
) -> None:
    """The header's length (u64), the header (JSON), and the numbers one after another."""
    header, end = {}, 0
    for name, tensor in tensors.items():
        start, end = end, end + prod(tensor.shape) * tensor.storage.itemsize
        header[name] = {
            "dtype": tensor.storage.dtype,
            "shape": tensor.shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    target.write(struct.pack("<Q", len(text)) + text)
    for tensor in tensors.values():
        target.write(numbers_of(tensor, archive, folder))


def limit(file_bytes: int) -> None:
    """Bounds on this process: computing time, memory, size of what it writes, no core dumps."""
    for kind, value in (
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_AS, 3 * file_bytes + MEMORY_BESIDE),
        (resource.RLIMIT_FSIZE, 2 * file_bytes + (1 << 20)),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))


class only_unpickling:
    """While it lasts, all that Python's audit hooks hear of is refused: opening, connecting, starting."""

    def __init__(self) -> None:
        self.lasts = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _arguments: Any) -> None:
        if self.lasts:
            raise Refused(f"tries {event}")

    def __enter__(self) -> None:
        self.lasts = True

    def __exit__(self, *_exception: object) -> None:
        self.lasts = False


def extract(source: Path, target: Path) -> None:
    """Write the tensors of SOURCE to TARGET; Refused says why not."""
    import numpy  # noqa: F401 - now, as nothing can be imported later than under `only_unpickling`

    with zipfile.ZipFile(source) as archive:
        folder, data = document(archive)
        unpickler = _Unpickler(io.BytesIO(data))
        with only_unpickling():
            thing = unpickler.load()
        with target.open("wb") as out:
            write_safetensors(tensors_of(thing), archive, folder, out)


def main(source: str, target: str) -> int:
    """Run as a program; see the module's text."""
    try:
        limit(Path(source).stat().st_size)
        extract(Path(source), Path(target))
        problem = ""
    except Refused as error:
        problem = str(error)
    except MemoryError:
        problem = "asks for more memory than its size explains"
    except Exception as error:  # whatever a hostile file raises is its own fault
        problem = f"is damaged ({type(error).__name__}: {str(error)[:120]})"
    print(json.dumps({"error": problem} if problem else {}))
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
