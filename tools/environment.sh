#!/usr/bin/env bash
# Make the environment of the book, and install into it what one part of the project needs:
#
#     tools/environment.sh PART KEY       # PART: an extra of pyproject.toml, such as book
#
# The Makefile calls it and sets PYTHON, VENV, TORCH, PIP_ARGS and INSTALLER. KEY names the state of
# all files that decide what is installed; a file .ready-PART-KEY in VENV says that it is there.
set -euo pipefail

say() { printf '%s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

python=$VENV/bin/python
enough='import sys; sys.exit(sys.version_info < (3, 11))'

if [ -x "$python" ] && [ -e "$VENV/.ready-$1-$2" ]; then exit; fi

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
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    # by the time the trap runs, Python has stopped too; what it left is made anew
    trap 'rm -rf "$VENV"; say; say "Stopped. The same command goes on from here."; exit 130' INT
    "$PYTHON" -m venv --clear "$VENV" >"$log" 2>&1 || {
        cat "$log" >&2
        if grep -q 'No space left' "$log"; then fail "the disk of $VENV is full"; fi
        fail "$PYTHON -m venv failed (on Debian and Ubuntu: apt install python3-venv)"
    }
    trap - INT
fi
"$python" -c "$enough" ||
    fail "VENV=$VENV has $("$python" --version 2>&1), but the book needs Python 3.11 or newer"
exec "$python" -m tools.install "$1" "$2"
