# Two commands matter: `make demo` does the main job on a fresh machine, `make test` passes every test.
# The first that is new enough and can make virtual environments; PYTHON=… names another.
CAN_SETUP = -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.14 python3; do \
	if $$python $(CAN_SETUP) >/dev/null 2>&1; then echo $$python; break; fi; done)
BIN := .venv/bin
AGENTS := $(notdir $(patsubst %/package.json,%,$(wildcard fixtures/agents/*/package.json)))
TOOLS := mcp-tools type-checker
# One file for each core: with more, a Claude's screen sends its first prompt before its tools are
# there. 0: one test after the other.
WORKERS ?= $(shell nproc)
PYTEST = $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
STRESS_SECONDS := 7200
DEMO_AGENTS := codex-0.153.4 claude-2.1.332 pi-0.74.2
# What the tests drive besides Python and Node: a tracer, network namespaces, a benchmark peer, and
# servers of terminals.
SYSTEM_PACKAGES := strace iproute2 ripgrep tmux screen

.PHONY: help setup agents demo test stress lint picture bench matrix mutants system clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    set everything up and run the main job: three real agents, one memory"
	@echo "make test    set everything up, lint, and run every test, WORKERS=$(WORKERS) files at a time"
	@echo "make stress  every test beside eight busy processes"
	@echo "make setup   the virtual environment with amux and its tools"
	@echo "make agents  the pinned real agents, below fixtures/agents/"
	@echo "make picture  the drawing of the rooms in docs/architecture.md, from the imports"
	@echo "make bench   the benchmarks, each a ratio in one run"
	@echo "make matrix  many versions of the agents, report against request, into docs/evidence.md"
	@echo "make mutants MODULE=hub/durable.py TESTS=tests/hub/test_durability_faults.py   what no test notices"

setup: .venv/.amux-installed

.venv/.amux-installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" && $(PYTHON) $(CAN_SETUP) || { echo "amux needs Python 3.11 or newer with" \
		"its venv module (on Debian: python3-venv); install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev,claude-sdk]'
	@touch $@

agents: $(foreach agent,$(AGENTS),fixtures/agents/$(agent)/node_modules/.amux-installed) $(TOOLS)

# What checks amux from the side of others: MCP tools, and a type checker.
.PHONY: $(TOOLS)
$(TOOLS): %: fixtures/%/node_modules/.amux-installed

fixtures/%/node_modules/.amux-installed: fixtures/%/package-lock.json
	@echo "installing $*"
	@cd fixtures/$* && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

fixtures/agents/%/node_modules/.amux-installed: fixtures/agents/%/package-lock.json
	@echo "installing $*"
	@cd fixtures/agents/$* && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@cd fixtures/agents/$* && for script in node_modules/@anthropic-ai/claude-code/install.cjs; do \
		if [ -f "$$script" ]; then node "$$script"; fi; done
	@touch $@

system:
	@missing=""; for package in $(SYSTEM_PACKAGES); do \
		dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$package"; done; \
	if [ -n "$$missing" ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null; fi

demo: setup $(foreach agent,$(DEMO_AGENTS),fixtures/agents/$(agent)/node_modules/.amux-installed)
	$(BIN)/amux demo --agents fixtures/agents

# The rooms in docs/architecture.md, from the imports.
picture: setup
	$(BIN)/python -m fixtures.rooms

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: setup agents system lint
	$(PYTEST)

# No test may say how busy the machine is. TESTS names some of them.
stress: SYSTEM_PACKAGES += stress-ng
stress: setup agents system
	@stress-ng --quiet --cpu 8 --timeout $(STRESS_SECONDS) & load=$$!; trap 'kill $$load' EXIT; \
	timeout $(STRESS_SECONDS) $(PYTEST) $(TESTS)

bench: setup agents system
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# Hours, and hundreds of megabytes: not for CI. What was interrupted goes on; MATRIX='--agent codex'
# and the like choose a part of it (see --help).
matrix: setup agents
	$(BIN)/python -m fixtures.matrix $(MATRIX)

# Changes one thing at a time in MODULE and runs TESTS (or all of the room) on each: not for CI.
mutants: build/mutants/.venv/.amux-installed
	build/mutants/.venv/bin/python -m fixtures.mutants $(MODULE) $(TESTS)

build/mutants/.venv/.amux-installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv build/mutants/.venv
	build/mutants/.venv/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev,claude-sdk,mutants]'
	@touch $@

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf fixtures/agents/*/node_modules $(TOOLS:%=fixtures/%/node_modules)
