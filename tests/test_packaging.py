"""The house as a package: rooms importable and shipped whole, a light recorder, full pins, doors as drawn."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPOSITORY = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
SUPPORTED = [(python, machine) for python in ("3.10", "3.11", "3.12") for machine in ("x86_64", "aarch64")]

# Who may import whom. The linter's contracts and the tables in the documents must say the same.
MAY_IMPORT = {
    "hardware": set(),
    "bars": set(),
    "sim": {"hardware"},
    "encoders": {"hardware"},
    "jetson": {"hardware", "encoders"},
    "reports": {"bars"},
    "probe": {"hardware", "bars", "sim", "encoders", "jetson", "reports"},
}
ROOMS = sorted(MAY_IMPORT)


def run_python(code: str, *arguments: str) -> str:
    """What `code` prints in a process of its own, started at the root of the repository."""
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert run.returncode == 0, f"exit {run.returncode}\n{run.stdout}\n{run.stderr}"
    return run.stdout


IMPORT_EVERY_MODULE = """
import importlib, json, sys

failed = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        failed[name] = repr(error)
print(json.dumps({"failed": failed, "loaded": sorted(sys.modules)}))
"""


def import_every_module(*rooms: str) -> dict:
    """Imports all modules of `rooms` in a new process: those that `failed`, and all that was `loaded`."""
    files = (path.relative_to(REPOSITORY) for room in rooms for path in (REPOSITORY / room).rglob("*.py"))
    names = sorted(".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files)
    return json.loads(run_python(IMPORT_EVERY_MODULE, *names).splitlines()[-1])


def test_every_module_of_every_room_can_be_imported() -> None:
    assert import_every_module(*ROOMS)["failed"] == {}


@pytest.mark.parametrize("room", ["hardware", "bars"])
def test_the_recorder_and_the_bars_need_no_heavy_library(room: str) -> None:
    loaded = {name.partition(".")[0] for name in import_every_module(room)["loaded"]}
    heavy = {"dm_control", "matplotlib", "mujoco", "sklearn", "torch", "torchvision", "transformers"}
    assert loaded & heavy == set()


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_has_a_front_door(room: str) -> None:
    door = ast.parse((REPOSITORY / room / "__init__.py").read_text(encoding="utf-8"))
    assert len((ast.get_docstring(door) or "").splitlines()) >= 3, (
        "it says in a few lines what the room is for"
    )
    names = {
        node.id for node in ast.walk(door) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    assert "__all__" in names, "it names what others use"


def room_files() -> set[str]:
    """Every file of the rooms, relative to the repository, as they must lie in the wheel."""
    files = (path for room in ROOMS for path in (REPOSITORY / room).rglob("*") if path.is_file())
    return {path.relative_to(REPOSITORY).as_posix() for path in files if "__pycache__" not in path.parts}


def test_the_wheel_holds_every_file_of_every_room_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for room in ROOMS:
        shutil.copytree(REPOSITORY / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (REPOSITORY / name).exists():
            shutil.copy(REPOSITORY / name, source / name)
    code = "import os, sys; os.chdir(sys.argv[1]); from setuptools.build_meta import build_wheel; "
    code += "print(build_wheel(sys.argv[2]))"
    wheel = tmp_path / run_python(code, str(source), str(tmp_path)).splitlines()[-1]
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = archive.read(next(n for n in names if n.endswith("/entry_points.txt"))).decode()
    assert {name for name in names if ".dist-info/" not in name} == room_files()
    assert any(name.startswith("bars/templates/") for name in names)
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert "jointprobe = probe.__main__:main" in entry_points


# Constraints: names and versions only, one version of each package for each supported machine.


def pins(file: str, python: str, machine: str) -> dict[str, str]:
    """Package -> the version that `file` pins for that Python on that machine."""
    environment = {
        **default_environment(),
        "python_version": python,
        "python_full_version": f"{python}.9",
        "platform_machine": machine,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    found: dict[str, str] = {}
    for line in (REPOSITORY / file).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        requirement = Requirement(line)
        assert requirement.url is None and not requirement.extras, line
        if requirement.marker is None or requirement.marker.evaluate(environment):
            name = canonicalize_name(requirement.name)
            assert name not in found, f"{file} pins {name} twice for Python {python} on {machine}"
            [specifier] = requirement.specifier
            assert specifier.operator == "==", line
            found[name] = specifier.version
    return found


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-lerobot.txt"])
def test_constraints_name_packages_and_versions_only(file: str) -> None:
    pattern = re.compile(r"[a-z0-9-]+==[0-9][A-Za-z0-9.]*( ; [^/:@]+)?")
    lines = (REPOSITORY / file).read_text(encoding="utf-8").splitlines()
    assert len(lines) > 100
    assert [line for line in lines if not line.startswith("# ") and not pattern.fullmatch(line)] == []


@pytest.mark.parametrize(("python", "machine"), SUPPORTED)
@pytest.mark.parametrize(
    ("file", "extras"),
    [("constraints.txt", ["dev", "cluster", "jetson"]), ("constraints-lerobot.txt", ["dev", "lerobot"])],
)
def test_each_dependency_is_pinned_within_what_we_ask_for(
    file: str, extras: list[str], python: str, machine: str
) -> None:
    pinned = pins(file, python, machine)
    asked = list(PYPROJECT["project"]["dependencies"])
    for extra in extras:
        asked += PYPROJECT["project"]["optional-dependencies"][extra]
    for requirement in map(Requirement, asked):
        here = {"python_version": python, "platform_machine": machine}
        if requirement.marker and not requirement.marker.evaluate(here):
            continue
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not pinned in {file}"
        assert requirement.specifier.contains(version), f"{file}: {requirement} excludes {version}"


def test_the_pins_that_are_known_to_matter_are_there() -> None:
    asked = {r.name: r.specifier for r in map(Requirement, PYPROJECT["project"]["dependencies"])}
    assert not asked["mujoco"].contains("4.0.0"), "dm_control 1.0.50 breaks on mujoco 4"
    assert not asked["numpy"].contains("2.4.0"), "LeRobot 0.4.4 breaks on numpy 2.4"
    assert PYPROJECT["project"]["requires-python"] == ">=3.10,<3.13", "labmaze has no wheel for 3.13"
    for version in ("2.7.0", "2.10.0", "2.14.1"):
        assert asked["torch"].contains(version)
    for version in ("4.57.6", "5.24.0"):
        assert asked["transformers"].contains(version)


# The doors between the rooms.


def test_the_rooms_import_only_whom_they_may() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([linter, "--no-cache", "--no-logo"], cwd=REPOSITORY, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_linter_checks_the_table_of_rooms() -> None:
    linter = PYPROJECT["tool"]["importlinter"]
    assert sorted(linter["root_packages"]) == ROOMS
    forbidden: dict[str, set[str]] = {room: set() for room in ROOMS}
    for contract in linter["contracts"]:
        assert contract["type"] == "forbidden" and not contract.get("ignore_imports"), contract["name"]
        for room in contract["source_modules"]:
            forbidden[room] |= set(contract["forbidden_modules"])
    for room, allowed in MAY_IMPORT.items():
        assert set(ROOMS) - forbidden[room] == allowed | {room}, room


def tables_of_rooms() -> list[tuple[str, dict[str, set[str]]]]:
    """The tables in our documents with columns `room` and `may import`: (file, room -> whom)."""
    documents = sorted(REPOSITORY.glob("*.md")) + sorted(REPOSITORY.glob("docs/**/*.md"))
    found = []
    for document in [*documents, REPOSITORY.parent / "shared" / "design.md"]:
        if not document.is_file():
            continue
        table: dict[str, set[str]] | None = None
        for line in document.read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if cells[0] == "room" and cells[-1] == "may import":
                table = {}
                found.append((document.name, table))
            elif table is not None and line.startswith("|"):
                room, words = cells[0].strip("`/"), set(re.findall(r"\w+", cells[-1]))
                if room in MAY_IMPORT:
                    table[room] = MAY_IMPORT["probe"] if "above" in words else words & set(ROOMS)
            else:
                table = None
    return found


def test_the_documents_draw_the_same_doors() -> None:
    tables = tables_of_rooms()
    if not tables:
        pytest.skip("no document here has a table of rooms")
    for document, table in tables:
        assert table == MAY_IMPORT, document
