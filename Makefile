# To start, two commands are enough: `make run` and `make test`.

NATIVE := $(wildcard src/mainstem/model/native/*.[ch])
PYTHON_IN_VENV := .venv/bin/python
BIN := .venv/bin
# Many tests start processes: bytecode is cached even if the environment disables it, or each of
# these processes would compile all its imports again.
export PYTHONDONTWRITEBYTECODE =
ARGS ?=
PYTEST_ARGS ?=
# As many as a small machine has cores; files stay whole, their fixtures are shared.
PYTEST_WORKERS ?= 2
PYTEST = $(PYTHON_IN_VENV) -m pytest -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help run test check gates format docs pin clients cluster chaos chaos-pipelines sim fuzz bench clean

help:  ## List the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1|/' | column -t -s '|'

.venv/.ready-run: pyproject.toml constraints.txt $(NATIVE)
	@scripts/setup run

.venv/.ready-test: pyproject.toml constraints.txt $(NATIVE)
	@scripts/setup test

.venv/.ready-docs: pyproject.toml constraints.txt
	@scripts/setup docs

run: .venv/.ready-run  ## Set up and start a node with a demo (ARGS=--no-demo: without).
	@exec $(BIN)/mainstem dev --demo $(ARGS)

test: .venv/.ready-test  ## Set up, then run every gate and every test (ARGS=--durations: and list the 30 slowest).
	@scripts/system-packages
	@$(MAKE) --no-print-directory gates
	$(PYTEST) $(patsubst --durations,--durations=30,$(ARGS)) $(PYTEST_ARGS)

# Types take about as long as all the rest, so two jobs at a time use two cores.
# A failing check does not stop the others.
GATES := check-types check-format check-lint check-imports
.PHONY: $(GATES) check-tidy
PARALLEL = $(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target

check: .venv/.ready-test  ## Format, lint, types, import direction, project rules.
	@$(PARALLEL) $(GATES) check-tidy

# `check` without the project rules, which `test` runs with the other tests.
gates: .venv/.ready-test
	@$(PARALLEL) $(GATES)

check-types:
	$(BIN)/mypy

check-format:
	$(BIN)/ruff format --check .

check-lint:
	$(BIN)/ruff check .

check-imports:
	$(BIN)/lint-imports

check-tidy:
	$(PYTHON_IN_VENV) -m pytest -q tests/tidy

format: .venv/.ready-test  ## Format every file.
	$(BIN)/ruff check --fix --select I .
	$(BIN)/ruff format .

docs: .venv/.ready-docs  ## Build the documentation as a site in build/site.
	$(BIN)/mkdocs build --strict

pin:  ## Resolve all dependencies again into constraints.txt.
	scripts/pin

clients: .venv/.ready-test  ## Every real Kafka client, full volume.
	@scripts/system-packages
	scripts/clients $(ARGS)

CLUSTER_TESTS := kafka client groups admin queues rest native amqp mqtt

cluster: .venv/.ready-test  ## The client tests of a single node, on three nodes.
	MAINSTEM_TEST_NODES=3 $(PYTEST) $(addprefix tests/integration/,$(CLUSTER_TESTS)) $(PYTEST_ARGS)

chaos: .venv/.ready-test  ## Kills, power losses, 300 faults of a cluster, transactions, mixed versions; one report.
	@scripts/system-packages
	scripts/chaos $(ARGS)

chaos-pipelines: .venv/.ready-test  ## Kill pipelines, Spark and node, with faults of every server.
	@scripts/system-packages
	scripts/chaos-pipelines $(ARGS)

sim: .venv/.ready-test  ## Simulate ranges, whole nodes and Raft under faults.
	scripts/sim $(ARGS)

fuzz: .venv/.ready-test  ## A million malformed inputs.
	scripts/fuzz $(ARGS)

bench: .venv/.ready-test  ## Speed and memory, compared with Apache Kafka.
	@scripts/system-packages bench
	scripts/bench $(ARGS)

clean:  ## Remove the virtual environment and every cache.
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build
