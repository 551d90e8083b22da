# Everything runs in .venv, which the first command makes; Python 3.11 or newer is all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
SOURCES := setup.cfg pyproject.toml $(shell find . -name '*.py' -path './[a-z_]*' \
	-not -path './tests/*' -not -path './build/*' -not -path './$(VENV)/*')

# One BLAS thread per replica: two replicas on two cores must not fight over them.
export OPENBLAS_NUM_THREADS ?= 1

# Tests of jobs mostly wait, for heartbeats and for processes: three at a time keep two cores busy.
TEST_WORKERS ?= 3

.PHONY: help demo test strict-test gpu-test gpu-test-marked gpu-test-alone gpu-test-replicas gpu-bench check format bench clean

help:
	@echo "make demo    train a convolutional network on handwritten digits: two workers and an evaluator"
	@echo "make test    run the tests"
	@echo "make strict-test    run those of computations on a stand-in for CuPy"
	@echo "make gpu-test, make gpu-bench    tests and benchmarks of a GPU, where there is one"
	@echo "make check   format, lint, types, layers"
	@echo "make bench   training steps side by side with plain NumPy (and PyTorch, if installed)"

demo: $(VENV)/demo $(VENV)/installed
	$(BIN)/paceline launch --workers 2 --evaluator examples/digits.py --replicas 1 --model-dir runs/digits

test: $(VENV)/test $(VENV)/installed
	$(BIN)/python -m pytest -m "not slow" -n $(TEST_WORKERS) --dist worksteal $(PYTEST_ARGS)

# The same tests on a stand-in for CuPy, which refuses what CuPy refuses, and no GPU. In the first what has no strategy is on a card, operands of tests
# included; in the second only what strategies' devices hold is, on a card for each, and in the third two of them share a card. (tests/devices/ is on
# the stand-in by itself.) It takes some 25 minutes of processor time: the second half of that, the third 3; by the clock, two tests at a time, about as long.
STRICT_TESTS ?= tests/autodiff tests/nn tests/golden tests/summary tests/compat tests/estimator
SHARED_CARD_TESTS ?= tests/strategies tests/checkpoint tests/golden tests/summary tests/compat
CARDS_TESTS ?= $(SHARED_CARD_TESTS) tests/fit tests/estimator tests/combinations tests/inputs
strict-test: $(VENV)/test $(VENV)/installed
	$(BIN)/python -m pytest -m "not slow" --array-library=strict -n $(TEST_WORKERS) --dist worksteal $(STRICT_TESTS) $(PYTEST_ARGS)
	$(BIN)/python -m pytest -m "not slow" --array-library=cards -n $(TEST_WORKERS) --dist worksteal $(CARDS_TESTS) $(PYTEST_ARGS)
	$(BIN)/python -m pytest -m "not slow" --array-library=shared-card -n $(TEST_WORKERS) --dist worksteal $(SHARED_CARD_TESTS) $(PYTEST_ARGS)

# What only a GPU can tell. Without one, or without CuPy (extras gpu, gpu12), both say so and do nothing. The tests are those of `strict-test`, and what is
# marked `gpu`; whatever fails, all of them run.
gpu-test: $(VENV)/test $(VENV)/installed
	$(BIN)/python benchmarks/gpu.py --why-not || $(MAKE) -k gpu-test-marked gpu-test-alone gpu-test-replicas

gpu-test-marked:
	$(BIN)/python -m pytest -m gpu tests $(PYTEST_ARGS)

gpu-test-alone:
	$(BIN)/python -m pytest -m "not slow" --array-library=gpu $(STRICT_TESTS) $(PYTEST_ARGS)

gpu-test-replicas:
	$(BIN)/python -m pytest -m "not slow" --array-library=gpu-cards $(CARDS_TESTS) $(PYTEST_ARGS)

gpu-bench: $(VENV)/test $(VENV)/installed
	$(BIN)/python benchmarks/gpu.py --json gpu.json

check: $(VENV)/dev $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p paceline
	$(BIN)/python -m pytest -q tests/project

format: $(VENV)/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/demo $(VENV)/installed
	$(BIN)/python benchmarks/step.py

clean:
	rm -rf $(VENV) build *.egg-info runs .pytest_cache .mypy_cache .ruff_cache

$(VENV)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "paceline needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# The extras of each command, once.
$(VENV)/demo: $(VENV)/python setup.cfg
	rm -rf build && $(PIP) install '.[examples]' && rm -rf build && touch $@ $(VENV)/installed

$(VENV)/test: $(VENV)/python setup.cfg
	rm -rf build && $(PIP) install '.[examples,test,mpich]' && rm -rf build && touch $@ $(VENV)/installed

$(VENV)/dev: $(VENV)/python setup.cfg
	rm -rf build && $(PIP) install '.[test,dev]' && rm -rf build && touch $@ $(VENV)/installed

# The installed copy is what examples, tests and type checkers see: renew it when a source changes.
$(VENV)/installed: $(SOURCES) | $(VENV)/python
	rm -rf build && $(PIP) install --no-deps --force-reinstall . && rm -rf build && touch $@
