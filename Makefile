# Two commands are enough to begin with: `make run` and `make test`.

NATIVE := $(wildcard src/mainstem/model/native/*.[ch])
PYTHON_IN_VENV := .venv/bin/python
BIN := .venv/bin
ARGS ?=
PYTEST_ARGS ?=
# As many as a small machine has cores; files stay whole, their fixtures are shared.
PYTEST_WORKERS ?= 2
PYTEST = $(PYTHON_IN_VENV) -m pytest -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help run test check format pin clients cluster chaos chaos-pipelines sim fuzz bench clean

help:  ## Say what can be made.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1|/' | column -t -s '|'

.venv/.ready-run: pyproject.toml constraints.txt $(NATIVE)
	@scripts/setup run

.venv/.ready-test: pyproject.toml constraints.txt $(NATIVE)
	@scripts/setup test

run: .venv/.ready-run  ## Set up and start a node and a demonstration (ARGS=--no-demo: the node).
	@exec $(BIN)/mainstem dev --demo $(ARGS)

test: .venv/.ready-test  ## Set up, then run every gate and every test.
	@scripts/system-packages
	@$(MAKE) --no-print-directory check
	$(PYTEST) $(PYTEST_ARGS)

check: .venv/.ready-test  ## Format, lint, types, import direction, house rules.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTHON_IN_VENV) -m pytest -q tests/tidy

format: .venv/.ready-test  ## Bring every file into the house's format.
	$(BIN)/ruff check --fix --select I .
	$(BIN)/ruff format .

pin:  ## Resolve all dependencies afresh into constraints.txt.
	scripts/pin

clients: .venv/.ready-test  ## Every real Kafka client, full volume.
	@scripts/system-packages
	scripts/clients $(ARGS)

CLUSTER_TESTS := kafka client groups admin queues rest native amqp mqtt

cluster: .venv/.ready-test  ## The client tests of a single node, on three nodes.
	MAINSTEM_TEST_NODES=3 $(PYTEST) $(addprefix tests/integration/,$(CLUSTER_TESTS)) $(PYTEST_ARGS)

chaos: .venv/.ready-test  ## Kill and power-loss rounds.
	@scripts/system-packages
	scripts/chaos $(ARGS)

chaos-pipelines: .venv/.ready-test  ## Kill pipelines, Spark and node, beside faults of every server.
	@scripts/system-packages
	scripts/chaos-pipelines $(ARGS)

sim: .venv/.ready-test  ## Ranges, whole nodes and Raft in a hostile world, seed after seed.
	scripts/sim $(ARGS)

fuzz: .venv/.ready-test  ## A million malformed inputs.
	scripts/fuzz $(ARGS)

bench: .venv/.ready-test  ## Speed and memory, beside Apache Kafka.
	@scripts/system-packages bench
	scripts/bench $(ARGS)

clean:  ## Remove the virtual environment and every cache.
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build
