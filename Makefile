# Everything runs from .venv, which is made when it is first needed: only make and Python 3.11 to 3.14 have to be there.
# Another Python: make test PYTHON=python3.13. On a Linux machine without a GPU, 3 GB instead of 9:
# make demo PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --progress-bar off --disable-pip-version-check -c constraints.txt

PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check docs clean

help:  ## say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

demo: .venv/installed-demo  ## make data, train a small Transformer on it, test it on unseen sentences; about 3 minutes
	$(BIN)/transduce demo

test: .venv/installed-test  ## run the tests that a change needs, in some minutes
	$(PYTEST) -m "not exhaustive"

test-all: .venv/installed-test  ## run every test: also hundreds of kills, generated requests, every preset in every format
	$(PYTEST) -m "not exhaustive" --hypothesis-profile=thorough --jaxtyping-packages=transduce,beartype.beartype
	$(PYTEST) -m exhaustive --hypothesis-profile=thorough

check: .venv/installed-test  ## format, lint and types; changes nothing
	scripts/check

docs: .venv/installed-docs  ## build the documentation as a site: docs/_build/html/index.html; some minutes the first time
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -c docs -d docs/_build/doctrees --fresh-env --fail-on-warning --keep-going --quiet . docs/_build/html

clean:  ## delete the environment; runs and models stay
	rm -rf .venv

.venv/bin/python:
	@command -v $(PYTHON) >/dev/null || { \
		echo "Transduce needs Python 3.11 to 3.14, and there is no '$(PYTHON)' here; try: make PYTHON=/path/to/python3"; exit 1; } >&2
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' || { \
		echo "Transduce needs Python 3.11 to 3.14, and $(PYTHON) is $$($(PYTHON) --version); try: make PYTHON=python3.13"; exit 1; } >&2
	@echo "Making the environment .venv"
	@$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

# Of what pip says, the reader sees what is downloaded, how large it is, and when it is installed; all of it if that fails.
# A stamp says which extras are installed; it is out of date when what has to be installed changes.
.venv/installed-%: pyproject.toml constraints.txt hatch_build.py $(wildcard src/transduce/kernels/native/*.[ch]) | .venv/bin/python
	@echo "Installing Transduce and what it stands on into .venv: PyTorch is large, so this takes some minutes the first time"
	@rm -f $@
	@{ $(INSTALL) -e '.[$*]' && touch $@; } 2>&1 | tee .venv/installing.log \
		| grep --line-buffered -oE '^ *(Downloading|Using cached) .*|^Installing collected packages'; \
		test -e $@ || { cat .venv/installing.log; echo "Transduce could not be installed, for the reason above"; exit 1; } >&2
	@test -e src/transduce/kernels/native/kernels.so -o -e src/transduce/kernels/native/kernels.dylib || { \
		echo "The kernels were not compiled, which needs a C compiler: PyTorch computes instead, more slowly."; \
		echo "Install gcc or clang, then: touch hatch_build.py, and make again"; } >&2
