#!/usr/bin/env bash
# Everything that only a machine with a GPU can show, in four minutes: see docs/gpu.md.
# usage: scripts/gpu_check.sh [--double] [--only PART,...] [--json FILE]
# Takes the Python of $PYTHON, else of .venv, else of PATH, and installs nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

python=${PYTHON:-}
if [ -z "$python" ]; then
    python=python3
    if [ -x .venv/bin/python ]; then python=.venv/bin/python; fi
fi
command -v "$python" >/dev/null || die "there is no $python; set PYTHON"
exec "$python" scripts/gpu/check.py "$@"
