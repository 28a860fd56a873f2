# The five commands of the project. Each sets up what it needs, and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := CMakeLists.txt $(shell find native -name '*.cpp' -o -name '*.hpp' -o -name 'CMakeLists.txt')

.PHONY: install demo test check test-python test-hybrid test-pairs test-sanitized conformance bench validate clean
.DEFAULT_GOAL := install

$(BIN)/python:
	@PYTHON=$(PYTHON) scripts/make_venv.sh $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml $(NATIVE)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --group test
	@touch $@

$(VENV)/installed-cuda: $(VENV)/installed-test
	$(BIN)/pip install --quiet --disable-pip-version-check --group cuda
	@touch $@

install: $(VENV)/installed
	@echo "installed: $(BIN)/busfare"

demo: $(VENV)/installed
	$(BIN)/busfare demo --output out/demo

check: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	git ls-files '*.cpp' '*.hpp' '*.h' '*.cu' '*.cuh' | xargs $(BIN)/clang-format --dry-run --Werror

test: check test-hybrid test-pairs test-sanitized test-python

test-python: $(VENV)/installed-test
	@scripts/system_packages.sh chromium libopenmpi-dev openmpi-bin libfftw3-dev
	$(BIN)/pytest -n auto

# CPUs and the stand-in run; the CUDA code is compiled by NVIDIA's wheels, for no GPU is needed for that.
test-hybrid: $(VENV)/installed-cuda
	@scripts/system_packages.sh libopenmpi-dev openmpi-bin libfftw3-dev libfftw3-mpi-dev
	$(BIN)/cmake -S hybrid -B build/hybrid -DHYBRID_CUDA_WHEELS=$$(echo $(abspath $(VENV))/lib/python3.*/site-packages/nvidia/cu13)
	$(BIN)/cmake --build build/hybrid --parallel
	$(BIN)/ctest --test-dir build/hybrid --output-on-failure

# The programs that validation runs on a GPU compile, and their references on the host know known answers.
test-pairs: $(VENV)/installed-cuda
	$(BIN)/python validation/pairs/build.py --out build/pairs --arch sm_90
	@for source in validation/pairs/*.cu; do build/pairs/$$(basename $$source .cu) --reference || exit 1; done

test-sanitized: $(VENV)/installed-test
	@scripts/system_packages.sh libopenmpi-dev openmpi-bin libfftw3-dev libfftw3-mpi-dev
	PATH=$(abspath $(BIN)):$$PATH hybrid/run/sanitized_tests.sh build/sanitized

# The same, and every published trace and measurement in the folder SHARED.
conformance: test
	BUSFARE_SHARED=$(abspath $(SHARED)) $(BIN)/pytest -n auto -m conformance

bench: $(VENV)/installed-test
	$(BIN)/python -m benchmarks

validate: $(VENV)/installed
	$(BIN)/python -m validation

clean:
	rm -rf $(VENV) build out
