# The five commands of the project. Each sets up what it needs, and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := CMakeLists.txt $(shell find native -name '*.cpp' -o -name '*.hpp' -o -name 'CMakeLists.txt')

.PHONY: install demo test check conformance bench validate clean
.DEFAULT_GOAL := install

$(BIN)/python:
	@PYTHON=$(PYTHON) scripts/make_venv.sh $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml $(NATIVE)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --group test
	@touch $@

install: $(VENV)/installed
	@echo "installed: $(BIN)/busfare"

demo: $(VENV)/installed
	$(BIN)/busfare demo --output out/demo

check: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	find native -name '*.cpp' -o -name '*.hpp' | xargs $(BIN)/clang-format --dry-run --Werror

test: check
	@scripts/system_packages.sh chromium
	$(BIN)/pytest

# The same, and every published trace and measurement in the folder SHARED.
conformance: test
	BUSFARE_SHARED=$(abspath $(SHARED)) $(BIN)/pytest -m conformance

bench: $(VENV)/installed-test
	$(BIN)/python -m benchmarks

validate: $(VENV)/installed
	$(BIN)/python -m validation

clean:
	rm -rf $(VENV) build out
