#!/usr/bin/env bash
# Make or mend the environment of the book: the pinned versions of constraints.txt, and stringlib
# itself, editable. Called by the Makefile with PYTHON, VENV, TORCH and PIP_ARGS set.
#
# PIP_ARGS is split into words on purpose; everything else is taken as it stands.
set -euo pipefail

say() { printf '%s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

python=$VENV/bin/python
enough='import sys; sys.exit(sys.version_info < (3, 11))'

if [ ! -x "$python" ] || ! "$python" -m pip --version >/dev/null 2>&1; then
    # a folder that holds something other than a virtual environment is somebody else's
    if [ -d "$VENV" ] && [ ! -e "$VENV/pyvenv.cfg" ] && [ -n "$(ls -A "$VENV")" ]; then
        fail "VENV=$VENV has no working Python with pip and is no virtual environment: name another folder"
    fi
    command -v "$PYTHON" >/dev/null ||
        fail "$PYTHON not found: install Python 3.11 or newer, or name it: make book PYTHON=python3.12"
    "$PYTHON" -c "$enough" ||
        fail "$PYTHON is $("$PYTHON" --version 2>&1), but the book needs Python 3.11 or newer: make book PYTHON=python3.12"
    say "Making the environment $VENV ..."
    "$PYTHON" -m venv --clear "$VENV" ||
        fail "$PYTHON -m venv failed (on Debian and Ubuntu: apt install python3-venv)"
fi
"$python" -c "$enough" ||
    fail "VENV=$VENV has $("$python" --version 2>&1), but the book needs Python 3.11 or newer"

# TORCH= may ask for another build than the pinned one, and each has a torchvision of its own
pins=$(mktemp)
trap 'rm -f "$pins"' EXIT
grep -vE '^torch(vision)?==' constraints.txt >"$pins"

# -qq: errors only. PyTorch goes first and by its own name, so that nothing else chooses its build.
pip_install() {
    "$python" -m pip install -qq ${PIP_ARGS:-} -c "$pins" "$@" ||
        fail "pip could not install what is missing: with the network on, the same command goes on from here"
}
say "Installing the pinned packages (the first time this takes some minutes) ..."
pip_install "$TORCH" setuptools
# what wants a PyTorch of its own, as torchvision does, has to fit this one
"$python" -c 'from importlib.metadata import version; print("torch==" + version("torch"))' >>"$pins"
pip_install --no-build-isolation -e '.[dev]' # in a folder that was moved, without the network too

# an install that was cut off leaves packages without all of their files, which pip takes as done
broken=$("$python" tools/broken_packages.py constraints.txt)
if [ -n "$broken" ]; then
    say "Mending" $broken "..."
    # one word for each package; what has no record cannot be uninstalled, only written over
    # shellcheck disable=SC2086
    pip_install --ignore-installed --no-deps $broken
fi
"$python" -m pip check >/dev/null || { "$python" -m pip check || true; fail "the packages do not fit together"; }
