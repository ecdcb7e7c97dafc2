#!/usr/bin/env bash
# Everything `make demo` and `make test` need, on Debian or Ubuntu, x86_64 or aarch64, Python 3.10 to 3.12:
# the OpenGL library that renders without a screen, a virtual environment in .venv, the pinned packages.
# Called by `make setup`, which calls it only when pyproject.toml or constraints.txt are newer than the last set-up.
#
#   PYTHON=python3.12 make setup     takes that interpreter instead of the first suitable one
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly VENV=.venv
readonly GL_PACKAGES="libegl1 libegl-mesa0 libopengl0 libgl1-mesa-dri"

say() { printf '==> %s\n' "$*"; }

stop() { # problem, then the lines that help
    printf '\nset-up stopped: %s\n' "$1" >&2
    shift
    printf '    %s\n' "$@" >&2
    exit 1
}

# Installs Debian packages where that needs no password, else stops with the line to type.
need_packages() { # why, packages
    local why=$1 as_root=()
    shift
    local line="sudo apt-get update && sudo apt-get install -y --no-install-recommends $*"
    command -v apt-get >/dev/null || stop "$why" "there is no apt-get here; install what Debian calls: $*"
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || stop "$why" "type this line, then the same command again:" "$line"
        as_root=(sudo -n)
    fi
    say "$why: installing $* (apt, a minute or less)"
    local log
    log=$(mktemp)
    if ! {
        "${as_root[@]}" apt-get update -qq &&
            "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
    } </dev/null >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        stop "apt could not install $*" "see what this line says, then the same command again:" "$line"
    fi
    rm -f "$log"
}

suitable() { "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' >/dev/null 2>&1; }

# The interpreter: the one named in PYTHON, else the first suitable one on this machine.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        suitable "$PYTHON" || stop "PYTHON=$PYTHON is not Python 3.10, 3.11 or 3.12" "found: $("$PYTHON" --version 2>/dev/null || echo nothing that runs)"
        command -v "$PYTHON"
        return
    fi
    local candidate found=()
    for candidate in python3 python3.12 python3.11 python3.10; do
        command -v "$candidate" >/dev/null || continue
        if suitable "$candidate"; then
            command -v "$candidate"
            return
        fi
        found+=("$("$candidate" --version 2>/dev/null || echo "a $candidate that does not run")")
    done
    if command -v uv >/dev/null; then # one that uv brought earlier; nothing is downloaded here
        if candidate=$(uv python find --no-python-downloads --no-project '>=3.10,<3.13' 2>/dev/null); then
            printf '%s\n' "$candidate"
            return
        fi
    fi
    stop "Python 3.10, 3.11 or 3.12 is needed; found: ${found[*]:-no python3 at all}" \
        "Debian 12, Ubuntu 22.04 and 24.04:  sudo apt-get install python3 python3-venv" \
        "elsewhere, with uv:                 uv python install 3.12" \
        "then the same command again (PYTHON=/path/to/python3.12 names one that is not on the PATH)"
}

# Asks EGL for its devices and starts one, as MuJoCo will through PyOpenGL: libEGL alone is not enough, it needs a
# driver, and PyOpenGL needs one of the two libraries that hold the OpenGL functions.
can_render() { # python
    "$1" - >/dev/null 2>&1 <<'PROBE'
import ctypes, sys
pointer = ctypes.c_void_p
try:
    ctypes.CDLL("libOpenGL.so.0")
except OSError:
    ctypes.CDLL("libGL.so.1")
egl = ctypes.CDLL("libEGL.so.1")
egl.eglGetProcAddress.restype = pointer
def function(name, result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)(egl.eglGetProcAddress(name))
query = function(b"eglQueryDevicesEXT", ctypes.c_uint, ctypes.c_int, pointer, pointer)
display_of = function(b"eglGetPlatformDisplayEXT", pointer, ctypes.c_uint, pointer, pointer)
start = function(b"eglInitialize", ctypes.c_uint, pointer, pointer, pointer)
devices, count = (pointer * 16)(), ctypes.c_int()
query(16, devices, ctypes.byref(count))
EGL_PLATFORM_DEVICE_EXT = 0x313F
sys.exit(not any(start(display_of(EGL_PLATFORM_DEVICE_EXT, d, None), None, None) for d in devices[: count.value]))
PROBE
}

ensure_opengl() { # python
    can_render "$1" && return
    # shellcheck disable=SC2086
    need_packages "OpenGL without a screen (for MuJoCo) is missing" $GL_PACKAGES
    can_render "$1" || say "warning: EGL still finds no device that works; simulated views will not render here"
}

make_venv() { # python
    local python=$1
    if [ -e $VENV ]; then
        if suitable $VENV/bin/python && { [ -z "${PYTHON:-}" ] || [ "$(version $VENV/bin/python)" = "$(version "$python")" ]; }; then
            return
        fi
        say "$VENV holds another or a broken Python: making it anew"
        rm -rf $VENV
    fi
    say "making $VENV with Python $(version "$python")"
    if command -v uv >/dev/null; then
        uv venv -q --no-project --python "$python" $VENV
    else
        "$python" -c 'import ensurepip, venv' 2>/dev/null ||
            need_packages "Python's venv module is missing" "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
        "$python" -m venv $VENV
    fi
}

version() { "$1" -c 'import platform; print(platform.python_version())'; }

# Of an installer's many lines, those that tell how far it is: downloads of 10 MB and more, then the installing.
progress() {
    local line
    while IFS= read -r line; do
        if [[ $line =~ ^\ *(Downloading|Using\ cached)\ ([^ ]+)\ \(([0-9]{2,}(\.[0-9]+)?\ ?Mi?B|[0-9.]+\ ?Gi?B)\) ]]; then
            local name=${BASH_REMATCH[2]} size=${BASH_REMATCH[3]}
            [[ $name == *.whl ]] && name=${name%%-*} # pip shows the file's name, uv the package's
            printf '    %s (%s)\n' "$name" "$size"
        elif [[ $line =~ ^(Prepared\ |Installing\ collected) ]]; then
            printf '    all downloaded; installing (a minute or two)\n'
        elif [[ $line =~ ^(ERROR|error|\ +×) ]]; then
            printf '    %s\n' "$line"
        fi
    done
}

install_packages() {
    local log
    log=$(mktemp)
    say "installing the packages of constraints.txt (the first time about 3 GB to download, 7 GB in $VENV; 2 to 15 minutes)"
    local installer=($VENV/bin/python -m pip install --progress-bar off --no-input)
    if command -v uv >/dev/null; then
        installer=(uv pip install --python $VENV/bin/python)
    elif ! $VENV/bin/python -m pip --version >/dev/null 2>&1; then
        $VENV/bin/python -m ensurepip >/dev/null # the environment was made by uv, which is not here now
    fi
    if ! "${installer[@]}" -c constraints.txt -e '.[dev]' 2>&1 | tee "$log" | progress; then
        tail -n 15 "$log" >&2
        stop "the packages could not be installed (all of it: $log)" "the same command again goes on from here"
    fi
    rm -f "$log"
}

main() {
    local python
    python=$(find_python)
    ensure_opengl "$python"
    make_venv "$python"
    install_packages
    say "set-up done: $VENV, Python $(version $VENV/bin/python)"
}

main
