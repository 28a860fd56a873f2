#!/bin/sh
# Makes the virtual environment $1 with $PYTHON (3.11 or newer); Debian keeps the module for that in a package of its own.
set -eu
python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "busfare needs Python 3.11 or newer, found: $("$python" --version 2>&1 || echo none). Set PYTHON=/path/to/python3.11" >&2
    exit 2
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    "$(dirname "$0")/system_packages.sh" python3-venv
fi
if ! command -v c++ >/dev/null && ! command -v g++ >/dev/null && ! command -v clang++ >/dev/null; then
    "$(dirname "$0")/system_packages.sh" g++
fi
if ! "$python" -c 'import sysconfig, pathlib, sys; sys.exit(not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").exists())'; then
    "$(dirname "$0")/system_packages.sh" python3-dev
fi
"$python" -m venv "$1"
# Dependency groups need pip 25.1.
"$1/bin/pip" install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
