# `make demo` trains and runs a translator; `make test` runs every check. Both create .venv on first use.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests start many processes; each module is compiled once, also where the environment turns bytecode files off.
export PYTHONDONTWRITEBYTECODE :=
# The files with slow tests come first (tests/conftest.py), so that all processes end together.
PYTEST = $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

.PHONY: demo test check lint types style docs browser format bench bench-quick clean

demo: $(READY)
	@$(BIN)/regard demo

# Everything: lint, types and all tests.
test: lint browser
	$(PYTEST)

# Before each commit: lint, types and the fast tests.
check: lint
	$(PYTEST) --quick

lint: $(READY)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target types style

types: $(READY)
	$(BIN)/mypy --num-workers 2

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python tools/check_prose.py

# The documentation site, in site/; any warning fails the build.
docs: $(READY)
	$(BIN)/python tools/build_reference.py
	$(BIN)/mkdocs build --strict --quiet

# Tests marked `browser` need Chromium: an installed one, else Debian's package, else Playwright's; without any they are skipped.
browser: $(READY)
	@command -v chromium-headless-shell >/dev/null \
		|| { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && apt-get update -qq >/dev/null 2>&1 \
			&& apt-get install -y -qq chromium-headless-shell >/dev/null 2>&1; } \
		|| which chromium chromium-browser google-chrome google-chrome-stable 2>/dev/null | grep -q . \
		|| $(BIN)/playwright install --only-shell chromium >/dev/null 2>&1 \
		|| echo "Chromium is not available, so browser tests are skipped. Install it, or set REGARD_CHROMIUM."

# Compares the speed with other implementations and writes docs/performance.md: hours, or about ten minutes.
bench: $(READY)
	$(BIN)/python benchmarks/run.py

bench-quick: $(READY)
	$(BIN)/python benchmarks/run.py --quick

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "regard needs Python 3.11 or later; this is $$($(PYTHON) --version). Try: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train,dev,docs]'
	@touch $@

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
