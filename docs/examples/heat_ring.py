"""Let heat spread around a closed ring, whose points are shared among the ranks.

mpirun -n 2 python docs/examples/heat_ring.py

Each step needs the points just outside a rank's own: the last of the left neighbour and
the first of the right one. On two ranks both neighbours are the same rank, and on one
rank they are the rank itself. So each message of `exchange` has a tag, which says the
way that it goes: what one rank sends "right" arrives where the other wants it "right".
"""

import sys

import numpy as np

import collectives

POINTS, STEPS, RATE = 1000, 500, 0.25


def starting_temperature():
    """Return a ring with some warm points and noise."""
    angle = np.linspace(0, 2 * np.pi, POINTS, endpoint=False)
    return np.maximum(np.sin(angle), 0) + np.random.default_rng(1).random(POINTS)


def fill_ends(comm, padded):
    """Receive the neighbours' points next to mine, into the two ends."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    if comm.size == 1:
        padded[0], padded[-1] = padded[-2], padded[1]
        return
    comm.exchange(
        [
            (right, padded[-2:-1], None, "right"),
            (left, None, padded[:1], "right"),
            (left, padded[1:2], None, "left"),
            (right, None, padded[-1:], "left"),
        ]
    )


def step(padded):
    """Return the new points inside."""
    return padded[1:-1] + RATE * (padded[:-2] - 2 * padded[1:-1] + padded[2:])


def main():
    """Compute over the ranks, and compare with the whole ring on rank 0."""
    comm = collectives.world()
    start = starting_temperature()
    padded = np.pad(comm.scatter(start), 1)
    for _ in range(STEPS):
        fill_ends(comm, padded)
        padded[1:-1] = step(padded)
    result = comm.gather(padded[1:-1])

    if comm.rank == 0:
        expected = start
        for _ in range(STEPS):
            expected = step(np.pad(expected, 1, mode="wrap"))
        print(f"{STEPS} steps of {POINTS} points on {comm.size} rank(s)")
        print(f"from {np.ptp(start):.6f} to {np.ptp(result):.6f} between the extremes")
        if not np.array_equal(result, expected):
            sys.exit("the temperature is wrong")
        print("the same bits as without ranks")


if __name__ == "__main__":
    main()
