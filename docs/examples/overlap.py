"""Compute while an all-reduce is under way, and say honestly what that gained.

mpirun -n 4 python docs/examples/overlap.py

`start_all_reduce` returns a handle at once, and a thread makes the call. That thread
needs a core from time to time, and so does the arithmetic: where every core has a rank
of its own already, there is little to gain, and this program will say so.
"""

import os

# Before NumPy is imported: the ranks share the cores, so one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
from time import perf_counter

import numpy as np

import collectives

NUMBERS, SIDE, PRODUCTS, REPEATS = 1 << 19, 200, 40, 9


def compute(matrix):
    """Multiply a matrix with itself, again and again; its length stays 1."""
    power = matrix
    for _ in range(PRODUCTS):
        power = power @ matrix
        power /= np.linalg.norm(power)
    return power


def timed(comm, action):
    """Return the best time of the slowest rank, in seconds, and the last result."""
    times = []
    for _ in range(REPEATS):
        comm.barrier()
        start = perf_counter()
        result = action()
        times.append(float(comm.all_reduce(perf_counter() - start, op="max")))
    return min(times), result


def main():
    """Time the call, the arithmetic, one after the other and both at once."""
    comm = collectives.world()
    random = np.random.default_rng(comm.rank)
    numbers = random.integers(-1000, 1000, NUMBERS).astype(float)  # exact in any order
    matrix = random.normal(size=(SIDE, SIDE))

    def both():
        handle = comm.start_all_reduce(numbers)
        power = compute(matrix)  # `numbers` belongs to the call until `wait`
        return handle.wait(), power

    both()  # the first call makes a group and a thread for the background
    calling, total = timed(comm, lambda: comm.all_reduce(numbers))
    computing, power = timed(comm, lambda: compute(matrix))
    together, (total_too, power_too) = timed(comm, both)
    everything = comm.gather(numbers[np.newaxis])
    same = np.array_equal(total, total_too) and np.array_equal(power, power_too)
    same = bool(comm.all_reduce(same, op="and"))

    if comm.rank == 0:
        print(f"{NUMBERS * 8 >> 20} MiB on {comm.size} rank(s), times in ms:")
        print(f"all-reduce  {1e3 * calling:6.2f}\ncomputing   {1e3 * computing:6.2f}")
        print(f"both        {1e3 * together:6.2f}")
        hidden = calling + computing - together
        if comm.size == 1:
            print("one rank: nothing travels, so there is nothing to hide")
        elif hidden > 0:
            share = min(hidden / calling, 1)
            print(f"hidden: {share:.0%} of the all-reduce, or {1e3 * hidden:.2f} ms")
        else:
            print(f"nothing was hidden: together they cost {-1e3 * hidden:.2f} ms more")
        if not (same and np.array_equal(total, everything.sum(axis=0))):
            sys.exit("the sums are wrong")
        print("the sums are exact")


if __name__ == "__main__":
    main()
