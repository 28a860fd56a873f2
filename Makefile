# The commands of the project. Each sets up what it needs, and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := CMakeLists.txt $(shell find native -name '*.cpp' -o -name '*.hpp' -o -name 'CMakeLists.txt')

# A worker a core; each takes whole files of tests, so that what a file builds is built once.
WORKERS := -n auto --dist loadscope --no-loadscope-reorder

.PHONY: install demo docs test test-all check test-python test-every-python test-hybrid test-pairs test-sanitized bench validate \
	screens clean
.DEFAULT_GOAL := install

$(BIN)/python:
	@PYTHON=$(PYTHON) scripts/make_venv.sh $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml $(NATIVE)
	@echo "installing busfare and what it needs into $(VENV): one or two minutes"
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --group test
	@touch $@

$(VENV)/installed-cuda: $(VENV)/installed-test
	$(BIN)/pip install --quiet --disable-pip-version-check --group cuda
	@touch $@

$(VENV)/system: $(BIN)/python scripts/system_packages.sh
	@scripts/system_packages.sh chromium libopenmpi-dev openmpi-bin libmpich-dev mpich gfortran libfftw3-dev libfftw3-mpi-dev libcli11-dev nlohmann-json3-dev
	@touch $@

install: $(VENV)/installed
	@echo "installed: $(BIN)/busfare"

demo: $(VENV)/installed
	$(BIN)/busfare demo --output out/demo

# Every broken link and anchor fails; nothing is fetched.
docs: $(VENV)/installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: $(VENV)/installed-test docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 0 tests/docs/test_phrases.py
	git ls-files '*.cpp' '*.hpp' '*.h' '*.cu' '*.cuh' | xargs $(BIN)/clang-format --dry-run --Werror

# What a contributor needs: no CUDA compiler, no MPI, no browser.
test: check test-python

# All of it. A test that is skipped fails: whatever it needs is installed here.
test-all: check test-every-python test-hybrid test-pairs test-sanitized

test-python: $(VENV)/installed-test
	$(BIN)/pytest $(WORKERS) -m "not conformance and not browser and not mpi and not sanitized"

# The tests of published traces are left out where there are none; where BUSFARE_SHARED names a folder, they must be there.
test-every-python: $(VENV)/installed-test $(VENV)/system
	$(BIN)/pytest $(WORKERS) --no-skips $(if $(BUSFARE_SHARED)$(wildcard ../shared/data),,-m "not conformance")

# CPUs and the stand-in run; the CUDA code is compiled by NVIDIA's wheels, for no GPU is needed for that: 75 takes the
# branches of GPUs before 80. Between pretended nodes Open MPI, over TCP too, and MPICH are tested.
test-hybrid: $(VENV)/installed-cuda $(VENV)/system
	$(BIN)/cmake -S hybrid -B build/hybrid '-DCMAKE_CUDA_ARCHITECTURES=75;90' -DHYBRID_CUDA_WHEELS=$$(echo $(abspath $(VENV))/lib/python3.*/site-packages/nvidia/cu13)
	$(BIN)/cmake --build build/hybrid --parallel $$(nproc)
	$(BIN)/ctest --test-dir build/hybrid --parallel $$(nproc) --output-on-failure
	$(BIN)/cmake -S hybrid -B build/hybrid-mpich -DHYBRID_CUDA=OFF -DMPI_CXX_COMPILER=mpicxx.mpich -DMPIEXEC_EXECUTABLE=$$(command -v mpiexec.mpich) -DCMAKE_UNITY_BUILD=ON -DCMAKE_CXX_FLAGS_RELEASE=-O1
	$(BIN)/cmake --build build/hybrid-mpich --parallel $$(nproc) --target put_test halo_test nas_ft nas_mg jacobi all_to_all work_queue
	$(BIN)/ctest --test-dir build/hybrid-mpich --parallel $$(nproc) --output-on-failure -R two_nodes

# The programs that validation runs on a GPU compile, and their references on the host know known answers.
test-pairs: $(VENV)/installed-cuda
	$(BIN)/python validation/pairs/build.py --out build/pairs --arch sm_90
	@ls validation/pairs/*.cu | xargs -P $$(nproc) -I {} sh -c 'build/pairs/$$(basename {} .cu) --reference || exit 255'

test-sanitized: $(VENV)/installed-test $(VENV)/system
	PATH=$(abspath $(BIN)):$$PATH hybrid/run/sanitized_tests.sh build/sanitized

bench: $(VENV)/installed-test
	$(BIN)/python -m benchmarks

validate: $(VENV)/installed
	$(BIN)/python -m validation

# The pictures of docs/screens.
screens: $(VENV)/installed $(VENV)/system
	@scripts/system_packages.sh pngquant
	PYTHONPATH=. $(BIN)/python scripts/screens.py

clean:
	rm -rf $(VENV) build out
