# Two commands: `make search` and `make test`. Each creates .venv and installs what is needed first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: search test check unit end-to-end clean

search: $(VENV)/.installed
	$(BIN)/nas search $(ARGS)

test: check unit end-to-end

# torch first and alone: a plain install of the rest would pull a CUDA build of several GB.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit: $(VENV)/.installed
	$(BIN)/python -m pytest --doctest-modules --ignore=tests nas profilers search_spaces -q
	$(BIN)/python -m pytest tests --ignore=tests/end_to_end -m "not slow" -q

end-to-end: $(VENV)/.installed
	$(BIN)/python -m pytest tests/end_to_end -m "not slow" -q

clean:
	rm -rf $(VENV) build *.egg-info
