"""Reads cases, finds the function for each, runs it and compares."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import collectives
from conformance import families
from conformance.case import Case, NotUnderstood, SkipCase
from conformance.encoding import encode, same, same_error

DEADLINE_S = 10  # of every collective; one case waits so long for one that never comes

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

# What runs a case of some api. Where its inputs leave open which of several calls was
# meant, it is a list of functions, and one of them must give what TensorFlow gave.
Function = Callable[[Case], Any]


@dataclass(frozen=True)
class Outcome:
    """What came of one case, on all ranks together."""

    id: str
    verdict: str
    why: str = ""


def known() -> dict[str, Function | list[Function]]:
    """Return the function of each api: those in `CASES` of all files in families/."""
    table: dict[str, Function | list[Function]] = {}
    for module in pkgutil.iter_modules(families.__path__):
        found = importlib.import_module(f"conformance.families.{module.name}")
        twice = table.keys() & found.CASES.keys()
        assert not twice, f"{module.name}: {twice} is in another family too"
        table.update(found.CASES)
    return table


def read(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the cases in files, one JSON object a line."""
    return [
        json.loads(line)
        for path in paths
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]


def run(cases: Iterable[dict[str, Any]]) -> Iterator[Outcome]:
    """Run cases one by one; with several ranks all must run the same ones."""
    table = known()
    comm: Any = None
    for case in cases:
        if "expected_per_worker" in case and comm is None:
            comm = _workers()
        verdict, why = _run_one(case, table, comm)
        if comm is not None:
            everywhere = comm.allgather((verdict, why))
            bad = [
                (rank, *one) for rank, one in enumerate(everywhere) if one[0] != PASSED
            ]
            if bad:
                verdict = bad[0][1]
                why = "; ".join(f"rank {rank}: {text}" for rank, _, text in bad)
        yield Outcome(case["id"], verdict, why)


def _workers() -> Any:
    """Return an mpi4py communicator, which no case can break.

    The first call of `world` says how long a case may wait for a worker.
    """
    return collectives.world(options=collectives.Options(timeout_s=DEADLINE_S)).mpi


def _run_one(
    case: dict[str, Any],
    table: dict[str, Function | list[Function]],
    comm: Any,
) -> tuple[str, str]:
    workers = len(case.get("expected_per_worker", [None]))
    size = 1 if comm is None else comm.size
    if workers > 1 and size != workers:
        return FAILED, f"{size} process(es); start {workers} with mpirun"
    rank = 0 if comm is None else comm.rank
    if case["api"] not in table:
        return FAILED, f"nothing here runs the api {case['api']!r}"
    functions = table[case["api"]]
    wanted = case["expected_per_worker"][rank] if workers > 1 else case
    if workers > 1 and not (isinstance(wanted, dict) and "error" in wanted):
        wanted = {"expected": wanted}
    verdicts = []
    for function in functions if isinstance(functions, list) else [functions]:
        given = Case(
            case["api"], dict(case["inputs"]), case["mode"], case["strategy"], rank
        )
        verdicts.append(_verdict(function, given, wanted))
    return next((one for one in verdicts if one[0] != FAILED), verdicts[0])


def _verdict(function: Function, case: Case, wanted: dict[str, Any]) -> tuple[str, str]:
    try:
        found = encode(function(case))
    except SkipCase as skip:
        return SKIPPED, str(skip)
    except NotUnderstood as error:
        return FAILED, f"not understood: {error}"
    except Exception as error:
        if "error" in wanted and same_error(wanted["error"], error):
            return PASSED, ""
        expected = wanted["error"]["type"] if "error" in wanted else wanted["expected"]
        return FAILED, f"raised {error!r}; wanted {_short(expected)}"
    if "error" in wanted:
        return FAILED, f"gave {_short(found)}; wanted {wanted['error']['type']}"
    if same(wanted["expected"], found):
        return PASSED, ""
    return FAILED, f"gave {_short(found)}; wanted {_short(wanted['expected'])}"


def _short(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) < 600 else text[:600] + "…"


def main(arguments: list[str] | None = None) -> int:
    """Run the files on the command line; print failures, skips and the count."""
    parser = argparse.ArgumentParser(
        prog="scripts/conformance.py",
        description="Run cases that TensorFlow produced against this package.",
        epilog="cases of two processes: mpirun -n 2 scripts/conformance.py …",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--api", help="only the cases of this api")
    given = parser.parse_args(arguments)
    cases = read(given.files)
    if given.api:
        cases = [case for case in cases if case["api"] == given.api]
    comm = _workers() if any("expected_per_worker" in case for case in cases) else None
    printing = comm is None or comm.rank == 0
    counts: Counter[str] = Counter()
    for outcome in run(cases):
        counts[outcome.verdict] += 1
        if printing and outcome.verdict != PASSED:
            print(f"{outcome.verdict} {outcome.id}: {outcome.why}")
    if printing:
        print(", ".join(f"{counts[word]} {word}" for word in (PASSED, FAILED, SKIPPED)))
    if comm is not None:
        _end_mpi(comm)
    return 1 if counts[FAILED] else 0


def _end_mpi(comm: Any) -> None:
    """End MPI here: what a case has broken would end the job as failed."""
    from mpi4py import MPI

    sys.stdout.flush()
    comm.Barrier()
    MPI.Finalize()
