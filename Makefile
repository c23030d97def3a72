# Every target makes its own environment in .venv: Python >= 3.11 and make are all that a machine needs.
#   make demo    train a small network on real handwritten digits
#   make test    the test suite               make lint    ruff and mypy
#   make bench   speed against PyTorch        make parity  the tests that need a real PyTorch
#
# PYTHON=python3.12 picks the interpreter, VENV=dir the place, PYTEST_ARGS / DEMO_ARGS / BENCH_ARGS are passed on.

VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?=
DEMO_OUT ?= build/demo
DEMO_ARGS ?=
PYTEST_ARGS ?= -q -n auto
BENCH_ARGS ?=
# The interpreter of the environment: $(PYTHON), or the first one found that is new enough.
CANDIDATES := $(if $(PYTHON),$(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python)

.PHONY: demo chargpt test parity lint bench clean
.DELETE_ON_ERROR:

demo: $(VENV)/.demo
	$(BIN)/rushlight run examples/digits.py --out $(DEMO_OUT) $(DEMO_ARGS)

chargpt: $(VENV)/.demo
	$(BIN)/rushlight run examples/chargpt.py $(DEMO_ARGS)

test: $(VENV)/.dev
	$(BIN)/python -m pytest $(PYTEST_ARGS)

parity: $(VENV)/.oracle
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m parity
	$(BIN)/python -m pytest $(PYTEST_ARGS) $$(grep -rlE 'importorskip\("torch"|torch_oracle' tests --include='test_*.py')

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.oracle
	$(BIN)/python bench/run.py --peer $(BIN)/python $(BENCH_ARGS)

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.base: pyproject.toml
	@for python in $(CANDIDATES); do \
	  if command -v $$python >/dev/null 2>&1 && $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	    echo "environment: $(VENV), $$($$python --version)"; \
	    $$python -m venv $(VENV) || { echo "Python's venv module is needed (Debian, Ubuntu: apt install python3-venv)"; exit 1; }; \
	    break; \
	  fi; \
	done; \
	test -x $(BIN)/python || { echo "no Python >= 3.11 among: $(CANDIDATES) (make PYTHON=... names another)"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.demo: $(VENV)/.base
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo,dev]'
	@touch $@

$(VENV)/.oracle: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[oracle]'
	@touch $@
