# `make demo` and `make test` on a fresh clone do everything; a second call does not install again.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test lint format faults install clean

demo: $(INSTALLED)
	$(BIN)/colafier demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# every kill, full disk and damaged file, which take longer than the part of them in `make test`
faults: $(INSTALLED)
	COLAFIER_FAULTS=all OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -s tests/faults

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@echo "Installing into .venv (once; a few minutes, most of it PyTorch) ..."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache build dist
