# `make demo` and `make test` do all the set-up by themselves; a second call does none of it again.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-deep lint format constraints clean

PYTHON_BIN := .venv/bin/python
STAMP := .venv/.set-up
comma := ,

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 14

setup: $(STAMP)  ## virtual environment in .venv with the pinned packages, OpenGL for headless MuJoCo

$(STAMP): pyproject.toml constraints.txt setup.sh
	@./setup.sh
	@touch $@

demo: $(STAMP)  ## the main job on the simulated arm, ends with a verdict card (under 10 minutes); ARGS="--to DIR"
	@MUJOCO_GL=$${MUJOCO_GL:-egl} .venv/bin/jointprobe demo $(ARGS)

# Several processes, as far as there are cores; a file's tests stay together, since they share what it made.
# Tests that talk to a clock come after them, one at a time: a bus that waits 50 ms for a servo does not know that
# other tests held the processor. `make test ARGS="-n 0 ..."` is one process, for a debugger.
PARALLEL = -n auto --maxprocesses 4
define run_tests
	@$(PYTHON_BIN) -m pytest -m "($(1)) and not realtime" $(2) $(PARALLEL) $(ARGS) || [ $$? -eq 5 ]  # 5: there is none
	@$(PYTHON_BIN) -m pytest -m "($(1)) and realtime" $(3) $(ARGS) -n 0 || [ $$? -eq 5 ]
endef

test: $(STAMP)  ## the whole suite without the slow and the deep tests; ARGS="tests/probe -x"
	$(call run_tests,not slow and not deep,--dist loadfile)

test-slow: $(STAMP)  ## the slow tests alone
	$(call run_tests,slow,-o timeout=1800 --dist worksteal,-o timeout=1800)

test-deep: $(STAMP)  ## simulations of what intervals cover; for who changes a statistic
	@$(PYTHON_BIN) -m pytest -m deep -o timeout=1800 $(PARALLEL) --dist worksteal $(ARGS)

lint: $(STAMP)  ## format, lint, types, and who may import whom
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-logo

format: $(STAMP)  ## format the code and mend what ruff can mend
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

# Pins that still fit are kept: ARGS=--upgrade takes the newest of all, ARGS="--upgrade-package torch" of one.
# The markers that every line would share (Linux, CPython below 3.13) are cut off.
BOTH_MACHINES := \(\(platform_machine == 'aarch64'[^()]*\) or \(platform_machine == 'x86_64'[^()]*\)\)
RESOLVE = uv pip compile pyproject.toml --universal --python-version 3.10 --extra dev --quiet \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links $(ARGS)
TIDY = sed -i -E "s/ and $(BOTH_MACHINES)$$//; s/( ;| and) python_full_version < '3\.13'$$//; 1i \# $(1) Made by: make constraints"
constraints:  ## resolve constraints.txt and constraints-lerobot.txt again (needs uv); ARGS=--upgrade
	@command -v uv >/dev/null || { echo "make constraints needs uv: pip install uv" >&2; exit 1; }
	@touch constraints.txt constraints-lerobot.txt
	$(RESOLVE) --extra cluster --extra jetson -o constraints.txt
	@$(call TIDY,Exact versions for Python 3.10 to 3.12 on Linux x86_64 and aarch64.) constraints.txt
	$(RESOLVE) --extra lerobot -o constraints-lerobot.txt
	@$(call TIDY,The same for the extra lerobot: pip install -c constraints-lerobot.txt -e .[dev$(comma)lerobot].) constraints-lerobot.txt

clean:  ## remove the virtual environment and the tools' caches
	rm -rf .venv *.egg-info build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
