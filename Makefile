# Everything a person or CI does here. Start with:  make demo
# Each target that needs the environment makes it first; once made that costs well under a second.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
BIN := .venv/bin
# Extra arguments: make demo ARGS="--keep", make test ARGS="-k rollout"
ARGS ?=

.PHONY: help setup demo serve test test-fast test-kubernetes test-kubernetes-versions kustomize check lint types imports format docs bench bench-lists bench-proposer sweep lock clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-24s %s\n", $$1, $$2}' Makefile
	@echo '  Arguments go in ARGS, for instance: make demo ARGS="--keep"'

setup: ## Make .venv with the command autotuner in it
	@bash scripts/setup.sh

demo: setup ## Tune a real Triton under a p99 ceiling on this machine
	@$(BIN)/autotuner demo $(ARGS)

serve: setup ## Serve the web UI and the REST API on a stack on this machine
	@$(BIN)/autotuner serve --sandbox $(ARGS)

test: setup ## Run all tests
	@bash scripts/test.sh $(ARGS)

test-fast: setup ## Run the unit and contract tests that start no process
	@$(BIN)/pytest -m "(unit or contract) and not integration" $(ARGS)

test-kubernetes: setup ## Run the tests on a real Kubernetes control plane, built from source the first time
	@$(BIN)/pytest -m kubernetes $(ARGS)

test-kubernetes-versions: setup ## Run them on the oldest and on the newest supported version of Kubernetes
	@bash scripts/test_kubernetes_versions.sh $(ARGS)

check: lint types imports ## Run every check that is not a test

lint: setup ## Check style and format (ruff)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@bash scripts/long_modules.sh

types: setup ## Check types (mypy, strict)
	@$(BIN)/mypy

imports: setup ## Check the import contract (import-linter)
	@$(BIN)/lint-imports

format: setup ## Rewrite the code in the house format
	@$(BIN)/ruff check --fix-only --exit-zero --quiet .
	@$(BIN)/ruff format .

docs: setup ## Write the diagrams and plots of docs/, the dashboards and the alerts anew from the code
	@$(BIN)/python -m scripts.state_diagram
	@$(BIN)/python -m scripts.monitoring
	@$(BIN)/python -m scripts.proposer_page

kustomize: setup ## Render deploy/kustomize/base from the Helm chart
	@$(BIN)/python -m scripts.kustomize_base

bench: setup ## Print figures beside their targets: the verdict, the proposer, how late ticks are, how long lists take, nights in which all is killed, how right diagnoses predict
	@$(BIN)/python -m tests.benchmarks $(or $(ARGS),verdict proposer throughput lists nights diagnose)

bench-lists: setup ## Measure lists over REST on a million trials with twenty clients
	@$(BIN)/python -m tests.benchmarks.lists $(ARGS)

bench-proposer: setup ## Let the proposers compete on simulated servers
	@$(BIN)/autotuner bench $(ARGS)

sweep: setup ## Try every configuration on the local stack: what the winner is compared with
	@$(BIN)/autotuner sweep $(ARGS)

# The result names no host, so that everybody installs from the index their own pip is set up for.
lock: setup ## Resolve requirements.lock anew from pyproject.toml
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
	    --extra dev --extra sandbox pyproject.toml --output-file requirements.lock
	@! grep -n '://' requirements.lock
	@$(MAKE) --no-print-directory setup

clean: ## Remove the environment and everything that was generated
	rm -rf .venv .setup.lock .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
