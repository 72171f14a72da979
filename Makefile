# `make quickstart` installs simnmt into .venv and runs the quickstart; `make test` installs what the tests need and runs them.

PYTHON ?= python3
# The torch that the tests are run with, asked for by itself: a range takes the newest build, with gigabytes of CUDA. The library
# takes any from 2.1 on; `make TORCH=torch==2.9.1 test` tries another.
TORCH ?= torch==2.13.0
VENV := .venv
# What `make check-deep` runs whole, at a scale of 10.
CAMPAIGNS := tests/campaigns tests/live/test_server.py tests/kernels/test_sanitized.py $(addprefix tests/world/,test_engines.py test_sanitized_world.py)
# The rooms whose results depend on the vector instructions of the processor: `make check` runs them as with AVX2 alone too.
ROUNDED := $(addprefix tests/,goldens kernels nmt streaming)
BIN := $(VENV)/bin

.PHONY: quickstart test docs lint check check-deep check-lowest check-python check-dist dist clean

quickstart: $(VENV)/.installed
	$(BIN)/simnmt run @quickstart

test: $(VENV)/.installed-test
	@echo "make test: all tests but the deep ones, which make check-deep runs"
	$(BIN)/python -m pytest -n auto --dist worksteal

# The documentation as a site in site/, which opens from disk; a broken link or anchor ends the build.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Style, types, and the floors of the rooms (pyproject.toml).
lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

# What .ci/run adds to the tests: lint, types, the documentation's examples and site, the GPU's kernels in Triton's interpreter, and
# the numeric tests as on a processor without AVX-512. Beside that a small validation of a live testbed, which takes a minute and
# wants a quiet box: SMOKE=skip leaves it out.
check: $(VENV)/.installed-dev
	@echo "make check: Triton's kernels, the numeric tests with AVX2 alone, lint, types, the documentation, a small live validation"
	SIMNMT_TRITON=required $(BIN)/python -m pytest tests/kernels/test_triton.py
	sh .ci/as-avx2 $(BIN)/python $(BIN)/python -m pytest -n auto --dist worksteal $(ROUNDED)
	$(MAKE) lint
	$(BIN)/python docs/run_examples.py
	$(MAKE) docs
	$(if $(filter skip,$(SMOKE)),,$(BIN)/simnmt validate @live-smoke --requests 60 --any-model)

# The tests and cases marked `deep`, and the properties of all rooms (with 50 times as many examples if they name no number); then
# the campaigns (tests/campaigns) with forty times as many cases, 10,000 random worlds (seed 20) in both engines, 100,000 live
# requests and 10,000 connections, the sanitizers over the builds of the kernels, and the examples of the documentation. The first
# run compiles llama-server for 15 minutes (benchmarks/services), and needs PyPI for it.
check-deep: $(VENV)/.installed-test
	@echo "make check-deep: the deep tests, the campaigns at full size, the sanitizers, the documentation's examples, the wheels"
	SIMNMT_CAMPAIGN_SCALE=10 $(BIN)/python -m pytest -n auto --dist worksteal -m "deep or hypothesis" $(addprefix --ignore=,$(CAMPAIGNS))
	@echo "both engines run 10,000 random worlds of seed 20"
	SIMNMT_CAMPAIGN_SCALE=10 $(BIN)/python -m pytest -n auto --dist worksteal $(CAMPAIGNS)
	$(BIN)/python docs/run_examples.py
	$(MAKE) check-dist

# Installs the wheels of `make dist` into new environments, and looks for the wheels that other platforms need.
check-dist: $(VENV)/.installed-test dist
	SIMNMT_DIST=$(abspath dist) $(BIN)/python -m pytest tests/packaging
	sh .ci/check-platforms $(abspath $(BIN))/python dist/simnmt-*-py3-none-any.whl

# What is published: dist/ with the source distribution, the wheel for every platform, and the wheel for this one.
dist: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -e ".[dist]"
	sh .ci/make-dist $(abspath $(BIN))/python dist

# The suite with the lowest versions that pyproject.toml declares, in an environment of its own. torch stays the tested one. Old
# libraries call what new ones deprecate, so that warnings are no failures here.
check-lowest:
	@sh .ci/make-venv "$(PYTHON)" .venv-lowest
	@sh .ci/install-tests .venv-lowest lowest-direct "$(TORCH)"
	.venv-lowest/bin/python -m pytest -n auto --dist worksteal -W default

# The suite in an environment of another Python: make check-python PYTHON=python3.13. `TORCH=` leaves torch out: the tests that need
# it are then skipped and counted (tests/optional_packages.py).
check-python:
	@sh .ci/make-venv "$(PYTHON)" .venv-python
	@sh .ci/install-tests .venv-python highest "$(TORCH)"
	.venv-python/bin/python -m pytest -n auto --dist worksteal

# The C is compiled at installation, so that a change of it asks for another.
$(VENV)/.installed: pyproject.toml hatch_build.py simnmt/base/compile.py $(wildcard simnmt/kernels/native/*.[ch] simnmt/world/compiled/*.[ch])
	@sh .ci/make-venv "$(PYTHON)" $(VENV)
	$(BIN)/python -m pip install --quiet -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml $(VENV)/.installed
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet -e ".[test]"
	@sh .ci/find-chromium $(BIN)/python
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	@touch $@

$(VENV)/.installed-docs: pyproject.toml $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -e ".[docs]"
	@touch $@

clean:
	rm -rf $(VENV) .venv-lowest .venv-python dist site
