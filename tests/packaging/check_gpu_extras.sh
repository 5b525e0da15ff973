#!/usr/bin/env bash
# Install the extras cuda12 and cuda13 on a machine without a GPU, and see that nothing
# breaks. Not in CI: together they take 6 GB. usage: check_gpu_extras.sh [cuda12 cuda13]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

extras=("$@")
[ $# -gt 0 ] || extras=(cuda12 cuda13)
python=$(find_python)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for extra in "${extras[@]}"; do
    make_venv "$python" "$folder/$extra"
    show "$folder/$extra/bin/python" -m pip install --quiet \
        --disable-pip-version-check ".[$extra]"
    (cd "$folder" && show "$extra/bin/python" - "$extra") <<'PYTHON'
import sys
import warnings

import numpy as np

import collectives
import strategy

assert "cupy" not in sys.modules
assert collectives.all_reduce(np.ones(2)).tolist() == [1, 1]
warnings.simplefilter("error")
from cupy.cuda import nccl

print(sys.argv[1], "NCCL", nccl.get_version())


class Array:
    """A device array as others describe theirs."""

    __cuda_array_interface__ = {
        "shape": (3,), "typestr": "<f4", "data": (4096, False), "version": 3,
    }  # fmt: skip


try:
    collectives.all_reduce(Array())
except collectives.UnsupportedError as error:
    print("as wanted:", error)
else:
    sys.exit("a device array was reduced without a GPU")
PYTHON
    say "$extra: $(du -sh "$folder/$extra" | cut -f 1)"
done
