#!/usr/bin/env python3
"""Run TensorFlow's cases against this package: conformance.py FILE.jsonl."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from conformance.runner import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
