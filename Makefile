# Targets for development; CI runs the same. `make help` lists them.
PYTHON ?= python3
PORT ?= 8080
VENV := .venv
BIN := $(VENV)/bin
DEV_EXTRAS := dev,eval,train,export
JOBS ?= 3
# Directory of the lock files; `make setup LOCK=` installs the versions that pyproject.toml allows, without them.
LOCK ?= docker/requirements
# Not in the lock files, so pinned by pyproject.toml's version (docs/decisions/0018).
TORCH := $(shell sed -n 's/.*"\(torch==[^"]*\)".*/\1/p' pyproject.toml | head -n 1)

.DEFAULT_GOAL := help
.PHONY: help setup demo base test test-fast check fmt bench site wheel sbom clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# $(call install,NAME,EXTRAS): installs the packages of NAME.txt with their hashes checked, then GLOW itself. Packages
# without a wheel are built by the locked setuptools: other build environments would fetch an unpinned one. uv takes a
# fifth of pip's time; pip follows where uv fails, because only pip reads pip.conf.
PIP := $(BIN)/python -m pip install --quiet
# Bytecode of what serves is written at once; what only developers import gets it at its first import.
COMPILE = UV_COMPILE_BYTECODE=$(if $(findstring serve.txt,$(1)),1,0)
quickly = { $(COMPILE) $(BIN)/python -m uv pip install --quiet $(1) || $(PIP) $(1); }
ifneq ($(LOCK),)
define install
	@$(PIP) --require-hashes --requirement $(LOCK)/build.txt \
		&& $(call quickly,--require-hashes --no-deps --no-build-isolation --requirement $(LOCK)/$(1).txt) \
		|| { echo "$(LOCK)/$(1).txt cannot be installed here (see above). If a hash differs, that file is not the one that was" \
			"tried: find out why. If no file fits this Python or system (tried: Python 3.11 on Linux x86-64), 'make LOCK='" \
			"installs what pyproject.toml allows, without lock files and hashes." >&2; exit 1; }
	$(if $(filter dev,$(1)),$(PIP) '$(TORCH)')
	@$(call quickly,--no-deps --no-build-isolation --editable .)
endef
else
define install
	$(PIP) --editable '.$(2)'
endef
endif

# The environment for serving and building, without torch.
$(VENV)/.serve: pyproject.toml $(if $(LOCK),$(LOCK)/serve.txt)
	$(PYTHON) -m venv $(VENV)
	$(call install,serve)
	@touch $@

# The environment for tests, training and export, with links for mypy to the packages by their import names (decision 18).
$(VENV)/.dev: $(VENV)/.serve $(if $(LOCK),$(LOCK)/dev.txt)
	$(call install,dev,[$(DEV_EXTRAS)])
	@mkdir -p $(VENV)/import-names
	@for name in service index_builder model_export demo; do ln -sfn ../../$$name $(VENV)/import-names/glow_$$name; done
	@touch $@

setup: $(VENV)/.dev ## make .venv with everything for development (torch included)

demo: $(VENV)/.serve ## index this Python's documentation and serve it (PORT=8080, DOCS=my-files)
	@$(BIN)/glow demo --port $(PORT) $(if $(DOCS),--docs $(DOCS))

base: $(VENV)/.serve ## make models/glow-base, a better but slower encoder (downloads 400 MB)
	$(BIN)/glow import-model glow-base --out models/glow-base --quantize int8

# Tests start hundreds of processes; without bytecode files, each would compile all of GLOW again.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.dev ## run the tests and list those not run (JOBS=3 processes)
	$(BIN)/python -m pytest -m "not gpu and not slow" --numprocesses=$(JOBS) --dist=loadfile \
		--no-loadscope-reorder --durations=10
	@echo; echo "Not run here:"
	@$(BIN)/python -m pytest --collect-only -q -m "gpu or slow" 2>/dev/null | grep '::' | sed 's/^/  /' || echo "  nothing"
	@test -d "$${GLOW_DATA:-../shared/data}" || { echo "  real collections (no folder GLOW_DATA):"; \
		$(BIN)/python -m pytest --collect-only -q -m "data" 2>/dev/null | grep '::' | sed 's/^/    /'; }
	@echo "  containers (tests/deploy/compose_up.py, where a container engine answers)"
	@echo "  benchmarks (make bench)"

test-fast: $(VENV)/.dev ## run the tests of formulas, components and the HTTP contract
	$(BIN)/python -m pytest -m "not gpu and not slow" --numprocesses=$(JOBS) --dist=loadfile --no-loadscope-reorder -q \
		tests/text tests/components tests/goldens tests/nn tests/artifact tests/search tests/service/test_contract.py

check: $(VENV)/.dev ## lint, format, types, import table, docs, counts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_imports.py tests/test_docs.py
	$(BIN)/python -m scripts.counts

fmt: $(VENV)/.dev ## format, and fix lint errors if possible
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## list the benchmarks and how to run them
	@$(BIN)/python -m benchmarks

site: $(VENV)/.dev ## build the documentation into build/site, check links, and open it
	$(BIN)/python -m sphinx -q -W --keep-going -b html -c docs/site . build/site
	@echo build/site/index.html; test -n "$$CI" || $(BIN)/python -m webbrowser "file://$(CURDIR)/build/site/index.html"

wheel: $(VENV)/.serve ## build the wheel into dist/ (no torch)
	rm -rf build
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

sbom: $(VENV)/.dev ## write the packages of each image to dist/sbom/, as CycloneDX
	$(BIN)/python -m scripts.sbom

clean: ## remove the environment, the demo's files and build outputs
	rm -rf $(VENV) .demo build dist
