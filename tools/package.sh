#!/usr/bin/env bash
# Build the sdist and the wheel of the last commit into dist/, and try each as a user would: in an
# environment with PyTorch alone, every public name is imported and README.md's lines run.
#
# PYTHON chooses the interpreter; PIP_ARGS is split into words on purpose.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
environment() { "${PYTHON:-python3}" -m venv "$folder/$1"; }
pip_install() { "$folder/$1/bin/python" -m pip install -qq ${PIP_ARGS:-} "${@:2}"; }

mkdir "$folder/tree" # neither what is not committed nor what an earlier build left gets in
git archive HEAD | tar -x -C "$folder/tree"
rm -rf dist
environment tools
pip_install tools build twine
"$folder/tools/bin/python" -m build --outdir dist "$folder/tree" >"$folder/log" || { cat "$folder/log"; exit 1; }
"$folder/tools/bin/python" -m twine check --strict dist/*

{
    echo 'import pkgutil, stringlib'
    echo 'for module in pkgutil.walk_packages(stringlib.__path__, "stringlib."):'
    echo '    exec(f"from {module.name} import *")'
    awk '/^```python/ { inside = 1; next } /^```/ { inside = 0 } inside' README.md
    echo 'print(stringlib.__version__, "with PyTorch", torch.__version__)'
} >"$folder/user.py"
environment user
for file in dist/*; do
    pip_install user --force-reinstall --no-deps "$file"
    pip_install user "$file" # what it needs
    (cd "$folder" && user/bin/python user.py)
done
