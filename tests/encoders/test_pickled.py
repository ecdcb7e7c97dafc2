"""Pickled networks: their weights are taken out, and nothing that a pickle asks for is ever run."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from encoders import checkpoint_files, pickled
from encoders.checkpoint_files import read_checkpoint
from hardware import InputError
from tests.encoders.official_lewm import Sizes, network_of, state_dict, their_modules, vit


class Calls:
    """Pickles as a call of `function` with `arguments`."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


def archive(path: Path, document: bytes, **entries: bytes) -> Path:
    """What torch.save writes, around a pickle of the test's own."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr("archive/data.pkl", document)
        file.writestr("archive/byteorder", b"little")
        file.writestr("archive/version", b"3\n")
        for name, data in entries.items():
            file.writestr(f"archive/data/{name}", data)
    return path


def saved(thing: Any) -> bytes:
    out = io.BytesIO()
    torch.save(thing, out)
    return out.getvalue()


def called(name: str, arguments: bytes) -> bytes:
    """A protocol-2 pickle that calls MODULE.NAME; `arguments` are opcodes that make a tuple."""
    module, _, last = name.rpartition(".")
    return b"\x80\x02c" + f"{module}\n{last}\n".encode() + arguments + b"R."


def text(words: str) -> bytes:
    return b"X" + len(words).to_bytes(4, "little") + words.encode()


# -- what is taken out -------------------------------------------------------------------------------------


def test_the_tensors_are_those_of_state_dict(tmp_path: Path) -> None:
    sizes = Sizes()
    with their_modules() as (jepa, part):
        network = network_of(
            {k: v for k, v in state_dict(sizes).items() if "encoder." not in k[:8]}, jepa, part
        )
        network.add_module("encoder", vit(sizes))  # transformers' own class, and torch's inside it
        network.register_parameter(
            "last", nn.Parameter(torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last))
        )
        network.register_parameter("part", nn.Parameter(torch.arange(20.0).reshape(4, 5).T[1:4, ::2]))
        network.register_buffer("rounded", torch.randn(3).bfloat16())
        network.register_buffer("flags", torch.tensor([True, False]))
        network.register_buffer("one", torch.tensor(7))
        network.register_buffer("none", torch.ones(0, 4))
        torch.save(network, tmp_path / "reacher_object.ckpt")
    expected = network.state_dict()
    assert "scratch" in dict(network.named_buffers()) and "scratch" not in expected
    read = read_checkpoint(tmp_path, trust_pickle=True)
    assert read.form == "pickled network" and read.tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        assert read.tensors[name].dtype == tensor.dtype
        torch.testing.assert_close(read.tensors[name], tensor, atol=0, rtol=0)


def test_networks_in_dicts_are_found(tmp_path: Path) -> None:
    with their_modules() as (jepa, part):
        inside = network_of({"a.weight": torch.ones(2)}, jepa, part)
        torch.save({"epoch": 3, "nets": [inside, {"b": torch.zeros(1)}]}, tmp_path / "last.ckpt")
    read = read_checkpoint(tmp_path / "last.ckpt", trust_pickle=True)
    assert sorted(read.tensors) == ["nets.0.a.weight", "nets.1.b"]


# -- what is never run -------------------------------------------------------------------------------------


def hostile(marker: Path) -> dict[str, bytes]:
    """Pickles that would make `marker`, were anything of them run, by what they ask for."""
    command = f"touch {marker}"
    python = f"open({str(marker)!r}, 'w').close()"
    chain = (  # getattr(getattr(os, "path"), "os").system(...), each step by getattr
        b"\x80\x02cbuiltins\ngetattr\n(cos\nsystem\n" + text("__call__") + b"tR(" + text(command) + b"tR."
    )
    by_name = (  # the names stand on the stack, and one comes from the memo
        b"\x80\x04"
        + text("posix")
        + b"\x94"
        + text("system")
        + b"\x940h\x00h\x01\x93("
        + text(command)
        + b"tR."
    )
    return {
        "posix.system": called("posix.system", b"(" + text(command) + b"t"),
        "os.system": called("os.system", b"(" + text(command) + b"t"),
        "builtins.eval": called("builtins.eval", b"(" + text(python) + b"t"),
        "builtins.exec": called("__builtin__.exec", b"(" + text(python) + b"t"),
        "subprocess.Popen": called("subprocess.Popen", b"(](" + text("touch") + text(str(marker)) + b"et"),
        "torch.hub.load": called("torch.hub.load", b"(" + text("evil/repo") + text("model") + b"t"),
        "torch.hub.download_url_to_file": called(
            "torch.hub.download_url_to_file", b"(" + text("x") * 2 + b"t"
        ),
        "torch.load": called("torch.load", b"(" + text(str(marker)) + b"t"),
        "torch.jit.load": called("torch.jit.load", b"(" + text(str(marker)) + b"t"),
        "builtins.getattr": chain,
        "posix.system by memo": by_name,
        "builtins.__import__": called("builtins.__import__", b"(" + text("antigravity") + b"t"),
        "importlib.import_module": called("importlib.import_module", b"(" + text("antigravity") + b"t"),
        "functools.partial": called("functools.partial", b"(cos\nsystem\n" + text(command) + b"t"),
        "operator.attrgetter": called("operator.attrgetter", b"(" + text("system") + b"t"),
        "pickle.loads": called("pickle.loads", b"(" + text("x") + b"t"),
        "jepa.os.system": called("jepa.os.system", b"(" + text(command) + b"t"),
        "module.os.system": b"\x80\x04"
        + text("module")
        + text("os.system")
        + b"\x93("
        + text(command)
        + b"tR.",
        "numpy.load": called("numpy.load", b"(" + text(str(marker)) + b"t"),
        "encoders.pickled.main": called("encoders.pickled.main", b"(" + text("a") + text("b") + b"t"),
    }


@pytest.mark.parametrize("trust_pickle", [False, True])
@pytest.mark.parametrize("which", list(hostile(Path("/"))))
def test_a_hostile_pickle_is_refused_and_not_run(tmp_path: Path, which: str, trust_pickle: bool) -> None:
    marker = tmp_path / "marker"
    document = hostile(marker)[which]
    path = archive(tmp_path / "reacher_object.ckpt", document)
    with pytest.raises(InputError) as stopped:
        read_checkpoint(path, trust_pickle=trust_pickle)
    assert not marker.exists()
    if "by memo" in which and not trust_pickle:  # the name is put together only while it is unpickled
        assert "no file of weights" in str(stopped.value) or "pickled object" in str(stopped.value)
    else:
        assert f"asks for {which.partition(' ')[0]}" in str(stopped.value)
    assert "Traceback" not in str(stopped.value)


def test_those_pickles_would_run_elsewhere(tmp_path: Path) -> None:
    """Otherwise the test above showed nothing."""
    marker = tmp_path / "marker"
    for which in (
        "os.system",
        "builtins.eval",
        "builtins.getattr",
        "subprocess.Popen",
        "posix.system by memo",
    ):
        started = pickle.loads(hostile(marker)[which])
        if isinstance(started, subprocess.Popen):
            started.wait()
        assert marker.exists(), which
        marker.unlink()


@pytest.mark.parametrize("trust_pickle", [False, True])
def test_a_call_hidden_among_weights_is_refused(tmp_path: Path, trust_pickle: bool) -> None:
    marker = tmp_path / "marker"
    tensors = dict(state_dict(Sizes()))
    tensors["sigreg.t"] = Calls(os.system, f"touch {marker}")  # type: ignore[assignment]
    (tmp_path / "weights.pt").write_bytes(saved(tensors))
    with pytest.raises(InputError, match=r"asks for posix\.system, which no LeWM needs"):
        read_checkpoint(tmp_path / "weights.pt", trust_pickle=trust_pickle)
    with their_modules() as (jepa, part):
        network = network_of({"a.weight": torch.ones(2)}, jepa, part)
        network.hook = Calls(eval, f"open({str(marker)!r}, 'w')")
        torch.save(network, tmp_path / "lewm_object.ckpt")
    with pytest.raises(InputError, match=r"asks for builtins\.eval, which no LeWM needs"):
        read_checkpoint(tmp_path / "lewm_object.ckpt", trust_pickle=trust_pickle)
    assert not marker.exists()


@pytest.mark.parametrize("trust_pickle", [False, True])
def test_bare_pickles_and_torchscript_are_refused(tmp_path: Path, trust_pickle: bool) -> None:
    marker = tmp_path / "marker"
    bare = {protocol: pickle.dumps(Calls(os.system, f"touch {marker}"), protocol) for protocol in (0, 2, 4)}
    old = io.BytesIO()
    torch.save(Calls(os.system, f"touch {marker}"), old, _use_new_zipfile_serialization=False)
    for number, data in enumerate((*bare.values(), old.getvalue())):
        path = tmp_path / f"{number}.ckpt"
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"no file of weights|is no checkpoint"):
            read_checkpoint(path, trust_pickle=trust_pickle)
    script = archive(tmp_path / "script.pt", pickle.dumps({}, 2))
    with zipfile.ZipFile(script, "a") as file:  # by which torch knows TorchScript, whose code it would load
        file.writestr("archive/constants.pkl", pickle.dumps((), 2))
    with pytest.raises(InputError, match="torchscript"):
        read_checkpoint(script, trust_pickle=trust_pickle)
    assert not marker.exists()


# -- files that would use a machine up ---------------------------------------------------------------------


def tensor(count: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    """A document with one tensor, as torch.save would describe it."""

    class Described:
        def __reduce__(self) -> tuple[Any, ...]:
            return torch._utils._rebuild_tensor_v2, (Stored(), offset, shape, strides, False, {})

    class Stored:
        pass

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing: Any) -> Any:
            return ("storage", torch.FloatStorage, "0", "cpu", count) if isinstance(thing, Stored) else None

    out = io.BytesIO()
    Pickler(out, 2).dump({"network": {"w": Described()}})
    return out.getvalue()


def extracted(tmp_path: Path, document: bytes, **entries: bytes) -> dict[str, torch.Tensor]:
    """What the process that reads pickles makes of a document."""
    return checkpoint_files._unpickled(archive(tmp_path / "a_object.ckpt", document, **entries))


def test_a_tensor_must_lie_within_its_numbers(tmp_path: Path) -> None:
    numbers = torch.arange(6.0).numpy().tobytes()
    whole = extracted(tmp_path, tensor(6, 1, (2, 2), (1, 2)), **{"0": numbers})
    assert whole["network.w"].tolist() == [[1.0, 3.0], [2.0, 4.0]]
    for count, offset, shape, strides in (
        (6, 0, (7,), (1,)),
        (6, 4, (3,), (1,)),
        (6, 0, (2, 2), (1, 100)),
        (6, 0, (1 << 20, 1 << 20), (0, 0)),
        (6, 0, (2, 2), (1,)),
    ):
        with pytest.raises(InputError, match="reaches past its numbers"):
            extracted(tmp_path, tensor(count, offset, shape, strides), **{"0": numbers})
    with pytest.raises(InputError, match="a tensor that is none"):
        extracted(tmp_path, tensor(6, -1, (2,), (1,)), **{"0": numbers})
    for count, entries in ((1 << 40, {"0": numbers}), (6, {})):
        with pytest.raises(InputError, match="lacks the numbers of a tensor"):
            extracted(tmp_path, tensor(count, 0, (2,), (1,)), **entries)


def test_things_within_themselves_are_refused(tmp_path: Path) -> None:
    twice: dict[str, Any] = {}
    for _ in range(40):
        twice = {"a": twice, "b": twice}
    itself: dict[str, Any] = {}
    itself["a"] = itself
    for thing in (twice, itself):
        with pytest.raises(InputError, match="nested deeper, or larger, than any network"):
            extracted(tmp_path, pickle.dumps(thing, 2))


def test_compressed_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", tensor(6, 0, (2,), (1,)))
        file.writestr("archive/data/0", bytes(50_000_000))
    assert path.stat().st_size < 100_000
    for trust_pickle in (False, True):
        with pytest.raises(
            InputError, match=r"holds 'archive/data\.pkl' compressed, as torch\.save never does"
        ):
            read_checkpoint(path, trust_pickle=trust_pickle)


def test_the_process_that_reads_has_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = b"\x80\x02]r" + (1 << 27).to_bytes(4, "little") + b"."  # a place in the memo: 2 GB of places
    with pytest.raises(InputError, match="asks for more memory than its size explains"):
        extracted(tmp_path, far)
    monkeypatch.setattr(checkpoint_files, "PATIENCE_S", 0.001)
    with pytest.raises(InputError, match="could not be read in"):
        extracted(tmp_path, pickle.dumps({}, 2))


def test_nothing_can_be_opened_or_started_while_it_unpickles(tmp_path: Path) -> None:
    """Were a name ever to lead somewhere, this would still stand in its way."""
    program = (
        "import os, socket, subprocess, sys\n"
        f"sys.path.insert(0, {str(Path(pickled.__file__).parent)!r})\n"
        "from pickled import Refused, only_unpickling\n"
        "tries = [lambda: open('marker', 'w'), lambda: os.system('touch marker'), lambda: socket.socket(),\n"
        "         lambda: subprocess.Popen(['touch', 'marker']), lambda: __import__('antigravity'),\n"
        "         lambda: os.remove('here'), lambda: exec('open(1)')]\n"
        "with only_unpickling():\n"
        "    for one in tries:\n"
        "        try:\n"
        "            one()\n"
        "        except Refused:\n"
        "            continue\n"
        "        os._exit(1)\n"
        "open('after', 'w').close()\n"
    )
    (tmp_path / "here").touch()
    done = subprocess.run([sys.executable, "-I", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["after", "here"]
