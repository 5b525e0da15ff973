#!/usr/bin/env bash
# Build a wheel, install it elsewhere and use it there: nothing may work only because
# the checkout is importable.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

python=$(find_python)
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
mkdir "$away/source" "$away/work"

# From a copy, which has no leftovers of earlier builds and gets none.
cp -r setup.py pyproject.toml README.md LICENSE collectives strategy "$away/source"
make_venv "$python" "$away/venv"
cd "$away/work"
unset PYTHONPATH
pip=("$away/venv/bin/python" -m pip --quiet --disable-pip-version-check)
export PATH="$away/venv/bin:$PATH"

say "building the wheel"
"${pip[@]}" wheel --no-deps --wheel-dir "$away" "$away/source"
wheel=$(echo "$away"/ringfold-*.whl)

say "a world of one, without MPI and mpi4py"
"${pip[@]}" install "$wheel"
cat >alone.py <<'PYTHON'
from importlib.util import find_spec

import numpy as np

import collectives

assert find_spec("mpi4py") is None, "mpi4py is here: this shows nothing"
total = collectives.world().all_reduce(np.arange(3))
assert total.tolist() == [0, 1, 2], total
PYTHON
show python alone.py

say "two ranks, with MPI from its wheel"
"${pip[@]}" install "${wheel}[mpich]"
show python -m pip check
cat >pair.py <<'PYTHON'
import sys
from pathlib import Path

import numpy as np

import collectives
import strategy

comm = collectives.world()
assert comm.all_reduce(np.full(5, comm.rank + 1.0)).tolist() == [3.0] * 5
for package in (collectives, strategy):
    folder = Path(package.__file__).parent
    assert folder.is_relative_to(sys.prefix), f"{folder} is not in {sys.prefix}"
    assert (folder / "py.typed").exists(), f"{folder} has no py.typed"
PYTHON
show timeout 60 mpirun -n 2 python pair.py
show timeout 60 ringfold tune --predict --hosts 4 --mpi MPICH -e 1K
show timeout 60 ringfold doctor
show timeout 60 mpirun -n 2 ringfold doctor
show timeout 120 mpirun -n 2 ringfold bench all_reduce -b 1K -e 64K -f 8 -n 5
say "the wheel works"
