# voxcast: start with `make demo` and `make test`; `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3)
TORCH ?= cpu
VENV := .venv
STAMP := $(VENV)/.installed
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# MLflow and DVC would otherwise report their use.
export MLFLOW_DISABLE_TELEMETRY := true
export DO_NOT_TRACK := true
export DVC_NO_ANALYTICS := true
# Compile modules once, not at every start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: setup ## Install if needed, run the whole graph on this machine, print the results
	@voxcast learn

.PHONY: setup
setup: $(STAMP) ## Create .venv and install under constraints.txt (TORCH=cpu or cuda)

# torch is installed first, from the index of your pip: other packages would pull in the newest
# version with several GB of CUDA libraries.
$(STAMP): pyproject.toml constraints.txt
	@case "$(TORCH)" in cpu|cuda) ;; *) echo "TORCH must be cpu or cuda, not $(TORCH)" >&2; exit 2;; esac
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV) \
	  || { echo "cannot make $(VENV): needs Python 3.11 with venv; set PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(VENV)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt torch
	$(VENV)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[all,dev,docs]'
	@$(VENV)/bin/python -c 'import sys, torch; have = "cuda" if torch.version.cuda else "cpu"; \
	  have == "$(TORCH)" or print(f"note: the torch installed is the {have} build, $(TORCH) was asked for; " \
	  "docs/index.md says how to point pip at the other", file=sys.stderr)'
	@touch $(STAMP)

.PHONY: params
params: setup ## Compose conf/ into params.yaml (CHECK=1 only compares)
	@python -m voxcast.config $(if $(CHECK),--check)

.PHONY: repro
repro: setup ## Bring everything up to date: dvc repro
	@voxcast inspect --refresh
	@voxcast models --refresh
	@dvc repro

NAME ?= reference
HOURS ?= 2
.PHONY: campaign
campaign: setup ## Measure a recorded campaign for HOURS=2, NAME=reference; continues where it stopped
	voxcast measure --campaign $(NAME) --time-budget $(HOURS)h

.PHONY: tile-weights
tile-weights: setup ## Train the network of tile_segment again, into data/tile_weights (minutes)
	@dvc repro pipelines/dvc.yaml:tile_weights

.PHONY: network-trunk
network-trunk: setup ## Pretrain the network again, into data/network_trunk (20 min)
	@dvc repro pipelines/dvc.yaml:network_trunk

.PHONY: history
history: setup ## Statistics of the recorded histories (noise floor); results/history
	@dvc repro pipelines/dvc.yaml:history

.PHONY: headline
headline: setup ## Errors and bounds for a new subject on a new day, of every contender (10 min); results/headline
	@dvc repro pipelines/dvc.yaml:headline
	@python docs/headline_tables.py

.PHONY: studies
studies: setup ## Accuracy of models on the recorded histories (an hour); results/studies
	@dvc repro pipelines/dvc.yaml:study

.PHONY: recorded
recorded: setup ## Train on the recorded reference campaign; copies the results to results/recorded
	dvc exp run -S campaign=recorded -S tune.budget_s=900
	@mkdir -p results/recorded
	@cp results/tune/leaderboard.csv results/evaluate/families.json \
	  results/register/receipt.json results/report/summary.txt results/recorded/

.PHONY: soak
soak: setup ## Kill workers of a pool at random until 300 cells are done; results/soak (KILLS=1000 for the long form)
	python benchmarks/soak.py $(if $(KILLS),--kills $(KILLS)) --out results/soak/$(if $(KILLS),kills_$(KILLS),soak).json

.PHONY: worth
worth: setup ## What asking for less is worth: simulated queues, and rounds on a private Slurm (40 min); results/worth
	@mkdir -p results && cp -rn published/worth results/
	python studies/worth_jobs.py
	python studies/residuals.py
	python benchmarks/worth_queue.py
	python benchmarks/worth.py

.PHONY: reference-model
reference-model: setup ## Learn the model in the package anew from the recorded campaigns (5 min)
	python studies/reference_model.py

.PHONY: ui
ui: setup ## Compare runs in the browser: mlflow ui on http://127.0.0.1:5000
	mlflow ui --host 127.0.0.1 --port 5000

.PHONY: serve
serve: setup ## Answer predictions over HTTP on http://127.0.0.1:5001
	voxcast serve

.PHONY: publish
publish: setup ## Copy results/ of this machine to published/, which is in git (NAMES="bench worth" for some)
	python docs/publish.py $(NAMES)
	python docs/result_tables.py
	python docs/figure.py

.PHONY: results-check
results-check: setup ## Which published results are older than the code and data that they come from
	@python docs/results_check.py

.PHONY: docs
docs: setup ## Refresh the tables and the figures from published/, build the pages into build/site
	python docs/result_tables.py
	python docs/figure.py
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

.PHONY: lint
lint: setup ## Style: ruff check and format; which room imports which
	ruff check .
	ruff format --check .
	lint-imports --no-logo

.PHONY: types
types: setup ## Types: mypy
	mypy

# A file of tests is run by one process, as its fixtures take long to make.
JOBS ?= $(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))
PYTEST := python -m pytest --dist loadfile -n

.PHONY: test
test: setup ## Unit and integration tests, on up to four cores (JOBS=1 for one)
	$(PYTEST) $(JOBS) -m "not slow" tests/unit tests/integration src

.PHONY: system
# Servers and batch jobs are waited for, so that one process more than cores is kept busy.
system: setup ## System tests: the whole graph, Slurm, kills, servers, the browser, the documentation
	$(PYTEST) $$(($(JOBS) + 1)) -m "not slow" tests/system

.PHONY: test-quick
# The long files of system tests begin first, and the short ones of unit tests fill the cores at the end.
test-quick: setup ## All tests but the slow ones, in one go
	$(PYTEST) $$(($(JOBS) + 1)) --no-loadscope-reorder -m "not slow" tests/system tests/integration tests/unit src

.PHONY: test-all
test-all: setup ## All tests, also those of many minutes
	$(PYTEST) $(JOBS)

.PHONY: bench
bench: setup ## Measure the bounds; prints JSON (ONLY=name for one, SAVE=1 keeps it)
	@python benchmarks/run.py $(if $(SAVE),--save) $(ONLY)
