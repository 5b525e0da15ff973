"""How the peers are timed: as `ringfold bench` times, so that figures can be compared.

A peer's script starts itself once per rank, each with the file that its figures go to.
A repetition is a batch of calls between two barriers; its time is the slowest rank's.
How many calls and repetitions there are depends on the size alone, so that the ranks
need not agree.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["PACK_BYTES", "Seconds", "bytes_of", "measure", "run"]

PACK_BYTES = 25 << 20  # what training libraries lay together
ITEM_BYTES = 4  # float32
WARMUP = 2

Seconds = dict[str, list[float]]
Body = Callable[[int, int, list[int], list[tuple[int, ...]], Path], Seconds]
"""`(rank, ranks, sizes, shapes, folder)` to seconds a call by name of the row."""


def run(title: Callable[[], str], body: Body) -> None:
    """Be the parent of all ranks, or one of them, as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", type=lambda text: [*map(int, text.split(","))])
    parser.add_argument("--shapes", type=shapes_in, metavar="FILE")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    known = parser.parse_args()
    folder = known.output.parent
    if known.rank is not None:
        seconds = body(known.rank, known.ranks, known.sizes, known.shapes, folder)
        known.output.write_text(json.dumps(seconds))
        return
    with tempfile.TemporaryDirectory(dir=folder) as own:
        by_rank = _start_ranks(known.ranks, Path(own))
    rows = {
        name: _summary([seconds[name] for seconds in by_rank]) for name in by_rank[0]
    }
    known.output.write_text(json.dumps({"title": title(), "rows": rows}))


def _start_ranks(ranks: int, folder: Path) -> list[Seconds]:
    """Run this script once per rank; return what each wrote."""
    outputs = [folder / f"{rank}.json" for rank in range(ranks)]
    children = [
        subprocess.Popen(
            [sys.executable, *sys.argv, "--rank", str(rank), "--output", str(output)],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        for rank, output in enumerate(outputs)
    ]
    try:
        while any(child.poll() is None for child in children):
            if any(child.poll() for child in children):
                break  # the others would wait for it
            time.sleep(0.05)
    finally:
        for child in children:
            child.kill()
            child.wait()
    if any(child.returncode for child in children):
        sys.exit(f"ranks ended with status {[child.returncode for child in children]}")
    return [json.loads(output.read_text()) for output in outputs]


def _summary(by_rank: list[list[float]]) -> dict[str, float]:
    """Return what `ringfold bench` prints, in microseconds."""
    slowest = [1e6 * max(repetition) for repetition in zip(*by_rank, strict=True)]
    return {"min": min(slowest), "median": median(slowest)}


def measure(
    nbytes: int, call: Callable[[], Any], barrier: Callable[[], Any]
) -> list[float]:
    """Return seconds a call, by repetition, of a call that moves so many bytes."""
    calls = min(max((16 << 20) // nbytes, 2), 20)
    repetitions = min(max((256 << 20) // (calls * nbytes), 5), 30)
    for _ in range(WARMUP):
        call()
    return [_batch(calls, call, barrier) for _ in range(repetitions)]


def _batch(calls: int, call: Callable[[], Any], barrier: Callable[[], Any]) -> float:
    barrier()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    seconds = time.perf_counter() - start
    barrier()
    return seconds / calls


def shapes_in(path: str) -> list[tuple[int, ...]]:
    """Return the shapes in a file of `collectives/tables/gradients`."""
    return list(_expanded(json.loads(Path(path).read_text())["shapes"]))


def _expanded(entries: list[Any]) -> Iterator[tuple[int, ...]]:
    for entry in entries:
        if isinstance(entry, dict):
            for _ in range(entry["repeat"]):
                yield from _expanded(entry["shapes"])
        else:
            yield tuple(entry)


def bytes_of(shapes: list[tuple[int, ...]]) -> int:
    """Return the bytes of all arrays together."""
    return ITEM_BYTES * sum(map(prod, shapes))
