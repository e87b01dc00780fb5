# `make demo` shows what regard does; `make test` checks all of it. Both set up .venv by themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test browser format clean

demo: $(READY)
	@$(BIN)/regard demo

test: $(READY) browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n auto

# The page is tested in Chromium: the one that is here, else Debian's, else Playwright's; without any, its tests are skipped.
browser: $(READY)
	@command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null \
		|| { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
			&& apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq chromium >/dev/null 2>&1; } \
		|| $(BIN)/playwright install chromium >/dev/null 2>&1 \
		|| echo "No Chromium could be had: the page is not tested in a browser. Install one, or set REGARD_CHROMIUM."

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "regard needs Python 3.11 or later; this is $$($(PYTHON) --version). Try: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
