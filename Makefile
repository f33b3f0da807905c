# Every target works from a fresh clone: it first makes .venv with what it needs. Nothing is installed outside .venv.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
JOBS ?= $(shell $(PYTHON) -c 'import os; print(len(os.sched_getaffinity(0)))')
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
export CMAKE_BUILD_PARALLEL_LEVEL = $(JOBS)
# Tests of the commands and of pip itself start processes of their own; they find the tools in .venv.
export PATH := $(CURDIR)/$(BIN):$(PATH)

NATIVE_FILES := $(shell find native -name '*.cpp' -o -name '*.h' -o -name '*.cmake')
CPP_FILES := $(filter %.cpp,$(NATIVE_FILES))
TIDY_STAMPS := $(CPP_FILES:%=build/tidy/%.ok)

.PHONY: bench-rivals help demo test check check-python check-native clang-format clang-tidy native-test tsan docs scheduled soak goldens wheels check-wheel test-wheel clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# --- what the targets stand on -------------------------------------------------------------------------------------

$(STAMPS)/pip:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer, please: make PYTHON=python3.11"'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	mkdir -p $(STAMPS) && touch $@

# Editable: Python files are used where they stand; native ones are built again when one of them changes.
$(STAMPS)/package: $(STAMPS)/pip pyproject.toml CMakeLists.txt $(NATIVE_FILES)
	$(BIN)/pip install --disable-pip-version-check --verbose --editable .
	touch $@

$(STAMPS)/test-tools: $(STAMPS)/pip pyproject.toml
	$(BIN)/pip install --quiet --group test --group native
	touch $@

$(STAMPS)/lint-tools: $(STAMPS)/pip pyproject.toml
	$(BIN)/pip install --quiet --group lint --group native
	touch $@

# --- for everybody -------------------------------------------------------------------------------------------------

demo: $(STAMPS)/package  ## Build, pull the default model, serve it, load it, print latencies and cost
	$(BIN)/python benchmarks/demo.py

test: $(STAMPS)/package $(STAMPS)/test-tools native-test  ## All tests; with CI=true a skip is a failure
	PYTHONPATH=tests/plugins $(BIN)/python -m pytest -p no_skips $(PYTEST_ARGS)

check: check-python check-native  ## Linters, types, import rules and the fast tests
	PYTHONPATH=tests/plugins $(BIN)/python -m pytest -p no_skips tests/unit tests/architecture $(PYTEST_ARGS)

docs:  ## Write the generated pages of docs/ again
	$(PYTHON) docs/make_kernels_page.py

# --- parts of check ------------------------------------------------------------------------------------------------

check-python: $(STAMPS)/package $(STAMPS)/lint-tools $(STAMPS)/test-tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check-native: clang-format clang-tidy

clang-format: $(STAMPS)/lint-tools
	$(BIN)/clang-format --dry-run -Werror $(filter %.cpp %.h,$(NATIVE_FILES))

clang-tidy: build/tidy/compile_commands.json
	+$(MAKE) --no-print-directory -j$(JOBS) $(TIDY_STAMPS)

# With the binding and without the emulated sets, which are the same sources again.
build/tidy/compile_commands.json: $(STAMPS)/lint-tools CMakeLists.txt $(filter %.cmake,$(NATIVE_FILES)) $(CPP_FILES)
	$(BIN)/cmake -S . -B build/tidy -G Ninja -DTOKENMILL_TESTS=ON -DSIMDE_INCLUDE_DIR= --log-level=WARNING \
	  -DSKBUILD=ON -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python \
	  -Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir)
	touch $@

# One stamp per file, so that only what changed is looked at again; any header may change what any file means.
build/tidy/%.ok: % .clang-tidy $(filter %.h,$(NATIVE_FILES)) | build/tidy/compile_commands.json
	@echo "clang-tidy $<"
	@report=$$($(BIN)/clang-tidy --quiet -p build/tidy $< 2>&1) || { echo "$$report"; exit 1; }
	@mkdir -p $(dir $@) && touch $@

# --- native tests --------------------------------------------------------------------------------------------------

native-test: $(STAMPS)/test-tools  ## Native tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(BIN)/cmake -S . -B build/asan -G Ninja -DTOKENMILL_TESTS=ON -DTOKENMILL_SANITIZE=address,undefined --log-level=WARNING
	$(BIN)/cmake --build build/asan
	$(BIN)/ctest --test-dir build/asan --output-on-failure --no-tests=error

tsan: $(STAMPS)/test-tools  ## Native tests under ThreadSanitizer
	$(BIN)/cmake -S . -B build/tsan -G Ninja -DTOKENMILL_TESTS=ON -DTOKENMILL_SANITIZE=thread --log-level=WARNING
	$(BIN)/cmake --build build/tsan
	$(BIN)/ctest --test-dir build/tsan --output-on-failure --no-tests=error

$(STAMPS)/wheel-tools: $(STAMPS)/pip pyproject.toml
	$(BIN)/pip install --quiet --group wheels
	touch $@

# --- longer than a commit can wait ---------------------------------------------------------------------------------

scheduled: $(STAMPS)/package $(STAMPS)/test-tools  ## The tests that only a schedule runs: fuzzing in full, and the like
	PYTHONPATH=tests/plugins $(BIN)/python -m pytest -p no_skips -m scheduled $(PYTEST_ARGS)

MINUTES ?= 10
soak: $(STAMPS)/package $(STAMPS)/test-tools  ## Random batches against the reference for MINUTES=10, into build/soak.json
	$(BIN)/python tests/numerics/soak.py --minutes $(MINUTES) --json build/soak.json

# The rivals, in a venv of their own. torch's CPU build is not on PyPI: PIP_EXTRA_INDEX_URL has to name an index with it.
build/goldens/.made: pyproject.toml
	test -x build/goldens/bin/python || $(PYTHON) -m venv build/goldens
	build/goldens/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	build/goldens/bin/pip install --quiet --group goldens
	touch $@

goldens: build/goldens/.made $(STAMPS)/package  ## Compare with, or make again, what the rivals gave (slow; needs torch)
	models="$$($(BIN)/tokenmill pull smollm2-135m) $$($(BIN)/tokenmill pull qwen2.5-coder-0.5b)"; \
	for script in "make_tokenizer_goldens.py --check" "make_template_goldens.py --check" make_kl_goldens.py; do \
	  build/goldens/bin/python tests/golden/$$script $$models; \
	done
	build/goldens/bin/python tests/golden/make_transformers_goldens.py
	git diff --stat -- tests/golden

# Each rival in a venv of its own, compiled for this machine where it is compiled at all.
RIVAL ?= llama_cpp
RIVAL_ARGS ?=
build/rivals/llama_cpp/.made: export CMAKE_ARGS = -DGGML_NATIVE=ON
build/rivals/llama_cpp/.made: PIP_RIVAL = --no-binary llama-cpp-python llama-cpp-python
build/rivals/openvino/.made: PIP_RIVAL = openvino-genai openvino-tokenizers
build/rivals/%/.made:
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(@D)/bin/pip install --quiet --upgrade $(PIP_RIVAL)
	touch $@

bench-rivals: build/rivals/$(RIVAL)/.made $(STAMPS)/package $(STAMPS)/test-tools  ## Time tokenmill and a rival in turn (RIVAL=llama_cpp|openvino, RIVAL_ARGS=…)
	$(BIN)/python benchmarks/bench_rivals.py --rival $(RIVAL) $(RIVAL_ARGS)

wheels: $(STAMPS)/wheel-tools  ## The release wheel for this platform into dist/, compiled by Zig, audited
	$(BIN)/python packaging/build_wheel.py

check-wheel: wheels $(STAMPS)/package  ## The release wheel answers like the build here, 60 s after pip install began
	$(BIN)/python packaging/check_wheel.py

test-wheel: wheels  ## All Python tests against the release wheel, installed in a venv of its own
	rm -rf build/wheel-venv && $(PYTHON) -m venv build/wheel-venv
	build/wheel-venv/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	build/wheel-venv/bin/pip install --quiet dist/tokenmill-*.whl --group test
	PYTHONPATH=tests/plugins build/wheel-venv/bin/python -m pytest -p no_skips $(PYTEST_ARGS)

clean:  ## Remove what the build made; .venv stays
	rm -rf build dist
	rm -f $(STAMPS)/package
