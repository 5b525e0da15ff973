"""Solve Poisson's equation on a square by conjugate gradients.

mpirun -n 4 python docs/examples/conjugate_gradients.py

The rows of the grid are shared among the ranks. The operator looks one row up and one
row down, so each rank first gets its neighbours' outer rows (`exchange`). Everything
else is local, but for two scalar products an iteration: tiny all-reduces, where what
counts is what a call costs and not how much it moves.
"""

import os

# Before NumPy is imported: the ranks share the cores, so one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
from time import perf_counter

import numpy as np

import collectives

GRID, TOLERANCE, MOST_ITERATIONS = 72, 1e-10, 1000


def with_halo(rows):
    """Return the rows with a border of zeros around them, and a view of the inside."""
    padded = np.pad(rows, 1)
    return padded, padded[1:-1, 1:-1]


def fill_halo(comm, padded):
    """Receive the rows just above and below mine; at the walls they stay zero."""
    pairs = []
    if comm.rank > 0:
        pairs.append((comm.rank - 1, padded[1], padded[0]))
    if comm.rank < comm.size - 1:
        pairs.append((comm.rank + 1, padded[-2], padded[-1]))
    comm.exchange(pairs)


def negative_laplacian(padded):
    """Return four times each point less its four neighbours."""
    return (
        4 * padded[1:-1, 1:-1]
        - (padded[:-2, 1:-1] + padded[2:, 1:-1])
        - (padded[1:-1, :-2] + padded[1:-1, 2:])
    )


def solve(comm, source, reducing):
    """Return my rows of the solution, the iterations, and the relative residual.

    To the list `reducing` go the seconds that each all-reduce took.
    """

    def product(a, b):
        """Return the scalar product over all ranks, the same bits on each of them."""
        part = np.vdot(a, b)
        start = perf_counter()
        total = comm.all_reduce(part)
        reducing.append(perf_counter() - start)
        return float(total)

    solution = np.zeros_like(source)
    residual = source.copy()
    padded, direction = with_halo(residual)
    first = error = product(residual, residual)
    for iteration in range(1, MOST_ITERATIONS + 1):
        fill_halo(comm, padded)
        image = negative_laplacian(padded)
        step = error / product(direction, image)
        solution += step * direction
        residual -= step * image
        previous, error = error, product(residual, residual)
        if error <= TOLERANCE**2 * first:
            return solution, iteration, (error / first) ** 0.5
        direction *= error / previous
        direction += residual
    sys.exit(f"not solved after {MOST_ITERATIONS} iterations")


def exact(source):
    """Solve the same equations at once: sines are the operator's eigenvectors."""
    angles = np.pi * np.arange(1, GRID + 1) / (GRID + 1)
    sines = np.sin(np.outer(angles, np.arange(1, GRID + 1))) * (2 / (GRID + 1)) ** 0.5
    values = 2 - 2 * np.cos(angles)
    return sines @ (sines @ source @ sines / np.add.outer(values, values)) @ sines


def main():
    """Solve over the ranks, and compare with the direct solution on rank 0."""
    comm = collectives.world()
    whole = np.random.default_rng(0).normal(size=(GRID, GRID))
    source = comm.scatter(whole if comm.rank == 0 else None)

    comm.barrier()
    start, reducing = perf_counter(), []
    rows, iterations, residual = solve(comm, source, reducing)
    elapsed, scale = perf_counter() - start, 1e6 / iterations
    solution = comm.gather(rows)

    if comm.rank == 0:
        wanted = exact(whole)
        error = np.abs(solution - wanted).max() / np.abs(wanted).max()
        print(f"{GRID} x {GRID} points on {comm.size} rank(s)")
        print(f"{iterations} iterations to a relative residual of {residual:.1e}")
        print(
            f"{elapsed * scale:.1f} us an iteration, {sum(reducing) * scale:.1f} of "
            "them in its two all-reduces, where it also waits for slower ranks"
        )
        print(f"largest relative difference from the direct solution: {error:.1e}")
        if not error < 1e-8:
            sys.exit("the solution is wrong")


if __name__ == "__main__":
    main()
