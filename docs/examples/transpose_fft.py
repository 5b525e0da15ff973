"""Transform a two-dimensional array by Fourier, its rows shared among the ranks.

mpirun -n 4 python docs/examples/transpose_fft.py

A two-dimensional transform is one along the rows, then one along the columns. A rank
has whole rows, so the first one is local. Then the array is transposed over the ranks:
each sends to every other the part of its rows that lies in the other's columns
(`all_to_all`). Now it has whole columns, and the second one is local as well.
"""

import sys
from itertools import pairwise

import numpy as np

import collectives

SHAPE = (510, 387)  # nothing that can be divided by the number of ranks


def shares(length, ranks):
    """Return the lengths into which `scatter` cuts rows: as even as can be."""
    return [len(part) for part in np.array_split(np.arange(length), ranks)]


def transpose(comm, rows):
    """Return my rows of the transposed array; `rows` are mine of the original.

    The blocks may differ in both directions, so they travel flat, and `splits` tells
    how much goes to whom.
    """
    columns = shares(rows.shape[1], comm.size)
    outgoing = rows.T.reshape(-1)  # column after column: one rank's are next to another
    received = comm.all_to_all(outgoing, splits=[n * len(rows) for n in columns])
    mine = columns[comm.rank]
    # From each rank came my columns of its rows; how many rows, the length tells.
    bounds = np.cumsum([0, *(n * mine for n in shares(SHAPE[0], comm.size))])
    blocks = [received[low:high].reshape(mine, -1) for low, high in pairwise(bounds)]
    return np.concatenate(blocks, axis=1)


def main():
    """Transform over the ranks, and compare with NumPy on rank 0."""
    comm = collectives.world()
    whole = None
    if comm.rank == 0:
        random = np.random.default_rng(0)
        whole = random.normal(size=SHAPE) + 1j * random.normal(size=SHAPE)
    rows = comm.scatter(whole)

    columns = transpose(comm, np.fft.fft(rows, axis=1))
    mine = np.fft.fft(columns, axis=1)
    spectrum = comm.gather(mine)  # its rows are the columns of the result

    if comm.rank == 0:
        wanted = np.fft.fft2(whole)
        error = np.abs(spectrum.T - wanted).max() / np.abs(wanted).max()
        print(f"{SHAPE[0]} x {SHAPE[1]} complex numbers on {comm.size} rank(s)")
        print(f"largest relative difference from numpy.fft.fft2: {error:.1e}")
        if not error < 1e-12:
            sys.exit("the transform is wrong")


if __name__ == "__main__":
    main()
