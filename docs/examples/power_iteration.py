"""Find the largest singular value of a matrix, its rows shared among the ranks.

mpirun -n 4 python docs/examples/power_iteration.py

It is the root of the dominant eigenvalue of A'A, found by multiplying with A'A again
and again. With rows A_r on rank r, A'A x is the sum of A_r'(A_r x) over the ranks. Each
rank has a whole vector of it, and needs a block of the sum (`reduce_scatter`); put
together, the blocks are the next x (`all_gather`). No rank needs the whole matrix.
"""

import os

# Before NumPy is imported: the ranks share the cores, so one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys

import numpy as np

import collectives

ROWS, COLUMNS, TOLERANCE, MOST_ITERATIONS = 700, 501, 1e-13, 500


def rows_of_matrix(start, stop):
    """Return some rows of a matrix that is mostly noise; each row has its own seed."""
    noise = [np.random.default_rng(row).normal for row in range(start, stop)]
    return np.array([normal(0.1, 1, COLUMNS) for normal in noise])


def largest_singular_value(comm, rows):
    """Return the value, its right singular vector (the same everywhere), iterations."""
    vector = np.full(COLUMNS, COLUMNS**-0.5)
    value = 0.0
    for iteration in range(1, MOST_ITERATIONS + 1):
        part = rows.T @ (rows @ vector)
        block = comm.reduce_scatter(part)
        image = comm.all_gather(block)
        previous, value = value, np.linalg.norm(image) ** 0.5
        vector = image / np.linalg.norm(image)
        # The same bits on all ranks, so that all of them stop in the same iteration.
        if abs(value - previous) <= TOLERANCE * value:
            return value, vector, iteration
    sys.exit(f"the value still changes after {MOST_ITERATIONS} iterations")


def main():
    """Iterate over the ranks, and compare with NumPy on rank 0."""
    comm = collectives.world()
    bounds = np.linspace(0, ROWS, comm.size + 1).astype(int)
    rows = rows_of_matrix(bounds[comm.rank], bounds[comm.rank + 1])
    value, vector, iterations = largest_singular_value(comm, rows)

    if comm.rank == 0:
        _, values, vectors = np.linalg.svd(rows_of_matrix(0, ROWS), full_matrices=False)
        error = abs(value - values[0]) / values[0]
        cosine = abs(vector @ vectors[0])
        print(f"{ROWS} x {COLUMNS} matrix on {comm.size} rank(s)")
        print(f"largest singular value {value:.9f} after {iterations} iterations")
        print(f"relative difference from numpy.linalg.svd: {error:.1e}")
        print(f"cosine between the singular vectors: {cosine:.9f}")
        if not (error < 1e-10 and cosine > 1 - 1e-8):
            sys.exit("the singular value is wrong")


if __name__ == "__main__":
    main()
