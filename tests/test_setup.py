"""setup.sh on machines that lack something: it stops before any download and says which line to type.

It runs as a copy in an empty folder with a PATH of stubs: of this machine, only bash takes part.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
TOOLS = ("bash", "cat", "dirname", "env", "mktemp", "rm", "tail")

# `python3 -c` answers whether the version suits, `python3 -` whether EGL renders.
PYTHON = (
    """case "$1" in --version) echo "Python {version}" ;; -c) exit {unsuitable} ;; -) [ -e {egl} ] ;; esac"""
)


class Machine:
    """Stubs: `bin` is the whole PATH, `log` holds what sudo was asked for, `egl` stands for a driver."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.log, self.egl = folder, folder / "bin", folder / "log", folder / "egl"
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
        shutil.copy(REPOSITORY / "setup.sh", folder)
        self.has("id", "echo 1000")
        self.has("sudo", "exit 1")
        self.has("apt-get", "exit 100")

    def has(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(f"#!{self.bin}/bash\n{script}\n")
        path.chmod(0o755)

    def has_python(self, version: str, *, name: str = "python3") -> None:
        unsuitable = int(version.split(".")[1] not in ("10", "11", "12"))
        self.has(name, PYTHON.format(version=version, unsuitable=unsuitable, egl=self.egl))

    def set_up(self, exit_code: int = 1, **environment: str) -> subprocess.CompletedProcess[str]:
        run = subprocess.run(
            [self.bin / "bash", "setup.sh"],
            cwd=self.folder,
            env={"PATH": str(self.bin), **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert run.returncode == exit_code, run.stdout + run.stderr
        return run


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_another_python_only(machine: Machine) -> None:
    machine.has_python("3.13.5")
    assert "Python 3.10, 3.11 or 3.12 is needed; found: Python 3.13.5" in machine.set_up().stderr


def test_no_python_at_all(machine: Machine) -> None:
    run = machine.set_up()
    assert "found: no python3 at all" in run.stderr
    assert "sudo apt-get install python3 python3-venv" in run.stderr


def test_the_python_one_names_must_suit(machine: Machine) -> None:
    machine.has_python("3.11.2")
    machine.has_python("3.9.18", name="python3.9")
    run = machine.set_up(PYTHON="python3.9")
    assert "PYTHON=python3.9 is not Python 3.10, 3.11 or 3.12" in run.stderr
    assert "found: Python 3.9.18" in run.stderr


def test_no_opengl_and_no_way_to_become_root(machine: Machine) -> None:
    machine.has_python("3.13.0")
    machine.has_python("3.12.1", name="python3.12")  # found behind a python3 that does not suit
    run = machine.set_up()
    assert "OpenGL without a screen (for MuJoCo) is missing" in run.stderr
    line = "sudo apt-get update && sudo apt-get install -y --no-install-recommends libegl1 "
    assert line in run.stderr
    assert not (machine.folder / ".venv").exists()


def test_opengl_is_installed_where_sudo_asks_no_password(machine: Machine) -> None:
    machine.has_python("3.12.1")
    machine.has("sudo", f"""echo "sudo $*" >>{machine.log}; shift; [ "$1" = true ] || "$@" """)
    machine.has("apt-get", f'case "$*" in *libegl1*) echo >{machine.egl} ;; esac')
    machine.has("uv", 'echo "uv $*" >&2; exit 3')  # ends the set-up where the environment would be made
    run = machine.set_up(exit_code=3)
    called = machine.log.read_text().splitlines()
    assert called[:2] == ["sudo -n true", "sudo -n apt-get update -qq"]
    assert "--no-install-recommends libegl1 libegl-mesa0 libopengl0 libgl1-mesa-dri" in called[2]
    assert "uv venv" in run.stderr and str(machine.bin / "python3") in run.stderr


def test_apt_that_fails_shows_why_and_the_line(machine: Machine) -> None:
    machine.has_python("3.12.1")
    machine.has("id", "echo 0")
    machine.has("apt-get", "echo 'E: Unable to locate package libegl1' >&2; exit 100")
    run = machine.set_up()
    assert "E: Unable to locate package libegl1" in run.stderr
    assert "apt could not install" in run.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_a_second_make_sets_nothing_up_again(tmp_path: Path) -> None:
    def make() -> int:
        return subprocess.run(["make", "setup"], cwd=tmp_path, capture_output=True, timeout=60).returncode

    calls = tmp_path / "calls"
    shutil.copy(REPOSITORY / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    script = tmp_path / "setup.sh"
    script.write_text("#!/bin/sh\necho called >>calls\nmkdir -p .venv\nexit 1\n")
    script.chmod(0o755)
    assert make() != 0 and make() != 0, "a set-up that failed is done again"
    script.write_text(script.read_text().replace("exit 1", "exit 0"))
    assert make() == 0 and make() == 0 and make() == 0
    assert calls.read_text().splitlines() == ["called"] * 3
    stamp = next((tmp_path / ".venv").iterdir())
    newer = stamp.stat().st_mtime + 10
    os.utime(tmp_path / "constraints.txt", (newer, newer))
    assert make() == 0
    assert calls.read_text().splitlines() == ["called"] * 4
