# Every target makes the environment first (.venv, from constraints.txt); that takes minutes once and no time afterwards.
# Without make, or on Windows: python scripts/environment.py app | test | lint | types | python ...

PYTHON ?= python3
ARGS ?=
ENVIRONMENT := $(PYTHON) scripts/environment.py
IN := $(ENVIRONMENT) python

.PHONY: help app test check lint lint-js types notebooks bench nightly release soak identity gpu triton models lock clean

help:
	@echo 'make app        open the lab at http://127.0.0.1:7860     ARGS="--model FOLDER --port 8000"'
	@echo 'make test       ruff, mypy and all tests of a commit      ARGS="-k h2o", BROWSER=none'
	@echo 'make check      ruff, mypy and the tests that the changed files ask for: a minute or so'
	@echo 'make lint       ruff and mypy only'
	@echo 'make types      pyright, over tests and training too: three minutes'
	@echo 'make lint-js    types and mistakes in the scripts of the page; needs Node'
	@echo 'make notebooks  the notebooks, in JupyterLab'
	@echo 'make bench      measure the methods on this machine'
	@echo 'make nightly    the tests that make test leaves out: two hours on two cores'
	@echo 'make release    the same with a million texts of each case'
	@echo 'make identity   greedy text equals plain decoding, 200 prompts of LabBench: an hour or two'
	@echo 'make soak       hours of runs, stops and faults'
	@echo 'make gpu        the tests that need a CUDA device'
	@echo 'make triton     the kernels for CUDA in the interpreter of Triton, which it fetches (700 MB); also part of make nightly'
	@echo 'make models     train the shipped models again'
	@echo 'make lock       the lock files of constraints.txt again, from PyPI; needs uv'
	@echo 'make clean      remove the environment, caches and build folders'

app:
	@$(ENVIRONMENT) app $(ARGS)

test:
	@$(ENVIRONMENT) test $(ARGS)

check:
	@$(ENVIRONMENT) check $(ARGS)

lint types:
	@$(ENVIRONMENT) $@

lint-js: node_modules/.package-lock.json
	@npm run --silent lint

node_modules/.package-lock.json: package.json package-lock.json
	@npm ci --no-audit --no-fund
	@touch $@

notebooks:
	@$(IN) -m jupyterlab notebooks $(ARGS)

bench:
	@$(IN) -m decodescope bench $(ARGS)

identity soak gpu:
	@$(IN) -m pytest --timeout 0 -m $@ $(ARGS)

release: export DECODESCOPE_TEXTS = 1000000
nightly release:
	@$(IN) -m pytest --timeout 0 -n auto --dist loadgroup -m nightly $(ARGS)
	@$(ENVIRONMENT) types
	@$(MAKE) triton ARGS=

triton: export PYTHONPATH = build/triton
triton: export TRITON_INTERPRET = 1
triton: build/triton/triton/__init__.py
	@$(IN) -m pytest --timeout 0 tests/engine/test_triton_kernels.py $(ARGS)

build/triton/triton/__init__.py:
	@$(IN) -m pip install --quiet --no-deps --target build/triton triton==3.7.1

# from nothing; ARGS="--tokens 8 --cooldown 3" is a run that two cores finish in a few hours, without ARGS it takes a day
models: TRAIN = $(IN) -m decodescope.training.train
models: AMOUNT = $(or $(ARGS),--tokens 60 --cooldown 20)
models:
	@$(IN) -m decodescope.training.corpus
	@$(TRAIN) lab $(AMOUNT)
	@$(TRAIN) lab-draft --teacher assets/models/lab $(AMOUNT)
	@$(TRAIN) lab-draft-plain $(AMOUNT)
	@$(IN) -m decodescope.training.infill --stage lists --tokens 4 --fresh
	@$(IN) -m decodescope.training.infill --within 120
	@$(IN) -m decodescope.training.heads medusa hydra eagle eagle3 kangaroo blockwise mlp_speculator
	@$(IN) -m decodescope.training.evaluate
	@$(IN) -m decodescope.training.infill_card

lock:
	@$(PYTHON) scripts/lock.py

# build/training stays: it holds the checkpoints of trainings that were interrupted
clean:
	rm -rf .venv node_modules .hypothesis .pytest_cache .ruff_cache .mypy_cache build/lib build/bdist.* build/types dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
