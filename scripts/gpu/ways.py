"""One way to move device arrays, on all ranks: every dtype and op, and stream order.

mpirun -n 2 python scripts/gpu/ways.py cuda_ipc --report FILE
"""

import argparse
import time
from functools import reduce

import cupy
import numpy as np
from said import Report

import collectives
from collectives.kernels import OPS_OF_KIND, UFUNCS, kind_of

DTYPES = (  # those that are used most come first
    *("float32", "float64", "int64", "float16", "int32", "bool", "complex64"),
    *("uint8", "int8", "int16", "uint16", "uint32", "uint64", "complex128"),
)
LENGTH = 1003  # odd, and no multiple of the ranks
REFUSED = (collectives.UnsupportedError, collectives.InvalidArgumentError)
PASSES = 24  # over an array, one behind the other, before it holds what is reduced


def given(rank, dtype, op="sum", length=LENGTH):
    """Return what a rank contributes: small numbers that tell rank and place."""
    high = 2 if op == "prod" else 5
    numbers = (np.arange(length) * 7 + rank * 3) % 97 % high + 1
    if dtype == "bool":
        return numbers % 2 == 0
    return (numbers * (1 - 1j) if dtype.startswith("complex") else numbers).astype(
        dtype
    )


def combined(ranks, dtype, op):
    """Return the reduction of what the ranks contribute, by NumPy."""
    parts = [given(rank, dtype, op) for rank in range(ranks)]
    if op != "mean":
        return reduce(UFUNCS[op], parts)
    wide = np.float32 if dtype == "float16" else parts[0].dtype
    wide = np.float64 if np.dtype(wide).kind in "iu" else wide
    total = sum(part.astype(wide) for part in parts) / ranks
    return total.astype(dtype if np.dtype(dtype).kind in "fc" else wide)


def reductions(comm, way, dtype, op):
    """Yield name, result and what it should be, for each call that reduces."""
    ranks, rank, total = comm.size, comm.rank, combined(comm.size, dtype, op)
    x = cupy.asarray(given(rank, dtype, op))
    yield "all_reduce", comm.all_reduce(x, op, algorithm=way), total
    if total.dtype == x.dtype:
        yield "all_reduce in place", comm.all_reduce(x, op, out=x, algorithm=way), total
    x = cupy.asarray(given(rank, dtype, op))
    to = ranks - 1
    yield "reduce", comm.reduce(x, op, to, algorithm=way), total if rank == to else None
    length = LENGTH // ranks * ranks
    own = np.split(total[:length], ranks)[rank]
    yield "reduce_scatter", comm.reduce_scatter(x[:length], op, algorithm=way), own


def moves(comm, way, dtype):
    """Yield name, result and what it should be, for each call that only moves."""
    ranks, rank, root = comm.size, comm.rank, comm.size - 1
    everyones = [given(r, dtype) for r in range(ranks)]
    length = LENGTH // ranks * ranks
    cut = [np.split(one[:length], ranks) for one in everyones]
    x = cupy.asarray(everyones[rank])
    here = rank == root
    yield "broadcast", comm.broadcast(x.copy(), root, algorithm=way), everyones[root]
    yield "all_gather", comm.all_gather(x, algorithm=way), np.stack(everyones)
    gathered = comm.gather(x, root, algorithm=way)
    yield "gather", gathered, np.stack(everyones) if here else None
    blocks = x[:length].reshape(ranks, -1)
    scattered = comm.scatter(blocks if here else None, root)  # by way of the host
    yield "scatter", scattered, cut[root][rank]
    exchanged = comm.all_to_all(blocks, algorithm=way)
    yield "all_to_all", exchanged, np.stack([cut[r][rank] for r in range(ranks)])


def differing(name, result, wanted):
    """Return what is wrong with a result; empty if nothing is."""
    if wanted is None:
        return (
            "" if result is None else f"{name} gave a result that is not for this rank"
        )
    result = result if isinstance(result, np.ndarray) else result.get()
    if result.dtype != wanted.dtype or result.size != wanted.size:
        return f"{name} gave {result.dtype} x {result.size}, not {wanted.dtype}"
    wrong = int(np.count_nonzero(result.reshape(-1) != wanted.reshape(-1)))
    return f"{name}: {wrong} of {wanted.size} elements are wrong" if wrong else ""


def matrix(report, way, until):
    """Make every call of every dtype and op, and compare with NumPy.

    The first one of each compiles a kernel; what there is no time for is told.
    """
    comm, refused, done, left = report.comm, {}, 0, list(DTYPES)
    while left and not comm.all_reduce(int(time.monotonic() > until), "max"):
        dtype, problems = left.pop(0), []
        ops = sorted(OPS_OF_KIND[kind_of(np.dtype(dtype))])
        for calls in [reductions(comm, way, dtype, op) for op in ops] + [
            moves(comm, way, dtype)
        ]:
            try:
                for name, result, wanted in calls:
                    problems.append(differing(name, result, wanted))
                    done += 1
            except REFUSED as error:
                text = str(error).partition(": ")[2] or str(error)
                refused.setdefault(text, []).append(dtype)
        wrong = [problem for problem in problems if problem]
        report.check(f"{way} {dtype}", "; ".join(wrong[:3]), calls=len(problems))
    told = {text: sorted(set(dtypes)) for text, dtypes in refused.items()}
    problem = "" if done else f"nothing could be done: {list(told)[:2]}"
    problem = problem or (f"no time for {' '.join(left)}" if left else "")
    report.check(f"{way} calls", problem, calls=done, refused=told)


def nan_is_kept(report, way):
    """Reduce NaN and infinities by min and max, which hand NaN on as NumPy does."""
    comm = report.comm
    values = [np.array([np.nan, 1, 2, np.inf, -np.inf, 0, r]) for r in range(comm.size)]
    values[0][1] = np.nan
    for op in ("min", "max"):
        x = cupy.asarray(values[comm.rank])
        try:
            result = comm.all_reduce(x, op, algorithm=way).get()
        except REFUSED:
            continue
        right = reduce(UFUNCS[op], values)
        problem = "" if np.array_equal(result, right, equal_nan=True) else f"{result}"
        report.check(f"{way} {op} of NaN", problem)


def torture(report, way, mib, repetitions, seconds):
    """Reduce what a slow queue of work on a stream of its own is still writing."""
    comm = report.comm
    size = mib * (1 << 20) // 4
    stream = cupy.cuda.Stream(non_blocking=True)
    wrong = made = 0
    with stream:
        base = cupy.arange(size, dtype=np.float32) % 1021
        x = cupy.empty_like(base)
        start = time.monotonic()
        for repetition in range(repetitions):
            for _ in range(PASSES):
                cupy.multiply(base, -1, out=x)  # what is read too early is negative
            cupy.add(base, comm.rank + repetition, out=x)
            total = comm.all_reduce(x, algorithm=way)
            ranks = comm.size
            right = base * ranks + (ranks * (ranks - 1) // 2 + ranks * repetition)
            wrong += int(cupy.count_nonzero(total != right))
            made += 1
            late = time.monotonic() - start > seconds
            if comm.all_reduce(int(late), "max"):
                break
    few = (
        f"only {made} of {repetitions} in {seconds} s" if made < repetitions / 5 else ""
    )
    text = f"{wrong} elements are wrong" if wrong else few
    report.check(f"{way} stream order", text, mib=mib, repetitions=made)


def main():
    """Make the checks that were asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("way")
    parser.add_argument("--report", required=True)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--limit", type=float, default=600.0)
    options = parser.parse_args()
    until = time.monotonic() + options.limit
    comm = collectives.world()
    runtime = cupy.cuda.runtime
    runtime.setDevice(comm.topology.local_rank % runtime.getDeviceCount())
    report = Report(comm, options.report)
    torture(report, options.way, options.mib, options.repetitions, options.seconds)
    nan_is_kept(report, options.way)
    matrix(report, options.way, until)


if __name__ == "__main__":
    main()
