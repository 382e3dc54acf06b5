# Two commands: `make run` and `make test`. Both prepare .venv first and are safe to repeat.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed

.PHONY: install run test lint slow clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints-dev.txt hatch_build.py $(wildcard dsv4prof/trace/core/csrc/*)
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -q -U pip
	$(VENV)/bin/python -m pip install -q -c constraints-dev.txt -e '.[all]'
	touch $@

run: install
	$(VENV)/bin/dsv4prof run --profile

# Two processes: most of the time is spent in children of the tests. A file's tests stay together, for their fixtures.
test: install lint
	$(VENV)/bin/python -m pytest -n 2 --dist loadfile

lint: install
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports
	$(VENV)/bin/mypy

slow: install
	$(VENV)/bin/python -m pytest -m slow

clean:
	rm -rf $(VENV) traces/local .pytest_cache .mypy_cache .ruff_cache
