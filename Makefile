# Every target does its own set-up. Needed: Python 3.11 or later, a C compiler, make.
#   make demo      the main scenario on two ranks
#   make test      every check; what the machine lacks is skipped with one printed line
#   make test-all  also what takes long
#   make format    lay out C and Python files
#   make lint      the checks that need no build
#   make package   build and install the package into the virtual environment
#   make clean     remove build folders and the virtual environment

.DEFAULT_GOAL := test
.PHONY: demo test test-all format lint package clean

SYSTEM_PYTHON ?= python3
VENV := .venv
PYTHON := $(VENV)/bin/python
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Files and folders (a removed file changes its folder) that the package is built from.
PACKAGE_SOURCES := $(shell find include src python meson.build meson.options pyproject.toml \
                                tools/uncopy.pc.in LICENSE -not -name __pycache__ -not -name '*.pyc')

C_FILES = $(shell find include src python/ext tests examples bench fuzz -name '*.[ch]' 2>/dev/null)

demo: $(VENV)/stamp-package
	$(PYTHON) examples/demo/run.py

test: $(VENV)/stamp-requirements
	@$(PYTHON) tools/run_tests.py test

test-all: $(VENV)/stamp-requirements
	@$(PYTHON) tools/run_tests.py all

lint: $(VENV)/stamp-requirements
	@$(PYTHON) tools/run_tests.py lint

format: $(VENV)/stamp-requirements
	@$(PYTHON) tools/wrap_comments.py $(C_FILES)
	clang-format -i $(C_FILES)
	ruff check --quiet --fix --select I .
	ruff format --quiet .

package: $(VENV)/stamp-package

$(VENV)/stamp-requirements: tools/requirements.txt
	@$(SYSTEM_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or later is needed; name it: make SYSTEM_PYTHON=..."; exit 1; }
	@test -x $(PYTHON) || $(SYSTEM_PYTHON) -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --requirement tools/requirements.txt
	@touch $@

# The build folder is kept, so that only what changed is compiled again.
$(VENV)/stamp-package: $(VENV)/stamp-requirements $(PACKAGE_SOURCES)
	$(PYTHON) -m pip install --quiet --no-build-isolation --no-deps \
	    --config-settings=build-dir=build-package .
	@touch $@

clean:
	rm -rf build build-* .pytest_cache .ruff_cache $(VENV)
