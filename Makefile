# The book, and its tests: make book, make test, make pages. `make help` lists the rest.

# The make of macOS, 3.81, does not know .SHELLFLAGS: no line may count on it.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# What you may set: make book PYTHON=python3.12 VENV=~/envs/book TORCH="torch==2.13.0"
# With QUICK=--quick, make pages leaves out its longest tests.
PYTHON   ?= python3
VENV     ?= .venv
TORCH    ?= $(shell grep '^torch==' constraints.txt)
PIP_ARGS ?=
INSTALLER ?= uv
PORT     ?= 8000
JOBS     ?= 2
QUICK    ?=
ROUNDS   ?= 15
SUITES   ?= limits encoders attention states delta models decoding

override VENV := $(patsubst ~/%,$(HOME)/%,$(VENV))
# by its Python: the first line of the script names the folder in which it was installed
PY   := "$(VENV)/bin/python"
JB   := $(PY) -m tools.build
HTML := _build/html

ifeq ($(shell test -w . && echo yes),)
$(error $(CURDIR) cannot be written: copy it to a folder that can)
endif

# What a target needs is an extra of pyproject.toml: env-book, env-test and so on install it. It is there
# when the stamp exists that is named after everything that it is made from; the folder too, which may
# have been moved or copied.
KEY := $(shell { cat constraints.txt pyproject.toml tools/environment.sh tools/install.py; echo '$(TORCH)'; pwd; } | cksum | cut -d' ' -f1)
INSTALL := bash tools/environment.sh
export PYTHON VENV TORCH PIP_ARGS INSTALLER

# The benchmark has an environment of its own: other libraries may not change what the book runs in.
BENCH := .venv-bench

# A change to what dresses every page builds the book from clean, any other only the pages it touches.
FRAME := _config.yml _toc.yml $(shell find _ext book/_assets -type f -not -name '*.pyc')
PAGES := $(shell find book notebooks stringlib lab tools results benchmarks $(wildcard tests) -type f \
           \( -name '*.md' -o -name '*.ipynb' -o -name '*.bib' -o -name '*.py' -o -name '*.mjs' -o -name '*.json' \) \
           -not -path '*/.ipynb_checkpoints/*')

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# uv leaves packages to be compiled when they are first imported. Many containers forbid Python to keep
# what it compiled; each process that imports PyTorch would then take twice as long.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help book pdf report posters serve check test test-all faults pages lab portable jupyter notebooks bench env clean

.PHONY: env-book env-browser env-edit env-test
env-book env-browser env-edit env-test:
	@$(INSTALL) $(@:env-%=%) $(KEY)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' Makefile
	@echo '  PYTHON=, VENV=, TORCH= and PIP_ARGS= choose the interpreter, the environment, the PyTorch'
	@echo '  build and further arguments for pip; see "Which PyTorch" in book/installing.md. INSTALLER=pip does'
	@echo '  without uv; JUPYTER_ARGS= are further arguments for JupyterLab.'

book: _build/book.stamp ## build the book and print the page to open
	@echo 'Next: make jupyter, to change a chapter and run it; make test, to check everything.'
	@echo "The book is at file://$(subst $() ,%20,$(CURDIR))/$(HTML)/index.html"

pdf: _build/book.stamp env-browser ## print the whole book as one PDF, with Chromium
	$(PY) tools/pdf.py $(HTML) _build/book.pdf

report: _build/book.stamp env-browser ## print what is new here, with its proofs, as a paper of a few pages
	$(PY) tools/report.py $(HTML) _build/report.pdf

serve: _build/book.stamp ## serve the built book on localhost (PORT=8000)
	@$(PY) -m tools.serve $(HTML) $(PORT)

jupyter: env-edit ## open JupyterLab on the notebooks
	$(PY) -m tools.jupyter $(JUPYTER_ARGS)

notebooks: env-test ## run the notebooks afresh and write them in their stable form
	$(PY) tools/notebooks.py --jobs $(JOBS)

bench: $(BENCH)/.ready ## measure against other libraries, half an hour (ROUNDS=15, SUITES=attention)
	for suite in $(SUITES); do $(BENCH)/bin/python -m benchmarks.$$suite --rounds $(ROUNDS) || exit; done
	$(BENCH)/bin/python -m benchmarks.moved $(SUITES)

check: env-test ## style, types and tests of one file or chapter: make check FILE=stringlib/encoders/rope.py
	$(PY) tools/check.py $(FILE)

# One worker is pytest itself: a process that hands out the tests to one more would collect them twice.
UNIT_JOBS = $(JOBS)
WORKERS = $(if $(filter-out 0 1,$(UNIT_JOBS)),-n $(UNIT_JOBS) --dist worksteal)
UNITS = $(PY) -m pytest -q -p no:nbval $(WORKERS) --ignore=tests/site tests

# The quick tests and the chapters run at once. Chapters take longer and have as many workers as there
# are cores. The quick tests have half as many, because each of their workers collects all of them.
test: env-test ## ten to fifteen minutes on two cores: form, types, the quick tests, every chapter run again
	$(MAKE) --no-print-directory -j $(JOBS) form types units chapters
	@echo 'Passed. "make test-all" adds all cases of these tests, the long tests, and the pages in a browser.'

test-all: env-test ## a quarter to half an hour: make test with all cases and the long tests, then make pages
	$(MAKE) --no-print-directory -j $(JOBS) form types
	$(UNITS)
	$(PY) tools/notebooks.py --replay --jobs $(JOBS)
	$(MAKE) --no-print-directory pages

faults: env-test ## plant known faults, one at a time: the tests that caught them still do
	$(PY) tools/faults.py --jobs $(JOBS)

# The fast checks come first: chapters wait for the form, and units for the types. What pytest says of
# chapters is kept until they have run, apart from its dots about units.
.PHONY: form types units chapters
form: env-test
	$(PY) -m ruff check --quiet .
	$(PY) -m ruff format --check --quiet .
	$(PY) tools/notebooks.py --check
	$(PY) tools/ledger.py --check

types: env-test
	$(PY) -m mypy

units: UNIT_JOBS = $(shell expr $(JOBS) / 2)
units: types
	$(UNITS) --quick

chapters: form
	@mkdir -p _build
	$(PY) tools/notebooks.py --replay --jobs $(JOBS) >_build/chapters.txt 2>&1 || { cat _build/chapters.txt; exit 1; }
	@tail -n 1 _build/chapters.txt

pages: env-test ## what is read: the book built from clean, and its pages in a browser
	rm -rf _build/test
	$(JB) _build/test
	$(PY) tools/check_site.py _build/test/_build/html
	BOOK_HTML="$(CURDIR)/_build/test/_build/html" $(PY) -m pytest -q -p no:nbval -n $(JOBS) --dist worksteal tests/site $(QUICK)

lab: env-test env-edit ## what JupyterLab shows and saves of a chapter
	$(PY) -m pytest -q -p no:nbval tests/test_lab_form.py tests/test_notebook_form.py

portable: env-test ## replay the notebooks once more, as the plainest processor computes
	$(PY) tools/notebooks.py --replay --plain --jobs $(JOBS)

posters: _build/book.stamp env-browser ## draw the posters of changed figures, with Chromium; build again to use them
	$(PY) tools/posters.py $(HTML)
	$(PY) tools/notebooks.py --no-run

env: env-test env-edit ## only make the environment, with all of its parts

clean: ## remove what was built; the environment stays
	rm -rf _build build *.egg-info .pytest_cache .mypy_cache .ruff_cache

# What has to be compiled may be missing in the end: the tables then say that it is not installed.
# The short PATH hides a compiler of CUDA, which would be used and need more than is here.
$(BENCH)/.ready: benchmarks/requirements.txt benchmarks/compiled.txt constraints.txt
	@echo 'Making the environment $(BENCH) ...'
	@$(PYTHON) -m venv --clear $(BENCH)
	@$(BENCH)/bin/python -m pip install -qq $(PIP_ARGS) -c <(grep -v '^torch==' constraints.txt) '$(TORCH)'
	@$(BENCH)/bin/python -m pip install -qq $(PIP_ARGS) --no-deps -r $<
	@echo 'Compiling what benchmarks/compiled.txt lists, some minutes ...'
	@PATH=/usr/bin:/bin $(BENCH)/bin/python -m pip install -qq $(PIP_ARGS) --no-deps \
	  --no-build-isolation -r benchmarks/compiled.txt || echo 'It did not: measuring without it.'
	@touch $@

_build/frame.stamp: $(FRAME) | env-book
	@rm -rf _build/html _build/.doctrees _build/book.stamp
	@mkdir -p _build
	@touch $@

# A failed build leaves no doctrees: Sphinx would not repeat their warnings. One that was stopped goes on.
_build/book.stamp: _build/frame.stamp $(PAGES) | env-book
	@$(JB) || { code=$$?; [ $$code = 130 ] || rm -rf _build/.doctrees; exit $$code; }
	@touch $@
