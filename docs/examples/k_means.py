"""Sort handwritten digits into ten clusters, the images shared among the ranks.

mpirun -n 4 python docs/examples/k_means.py

Each rank assigns its own images to the nearest centre. What all of them have to know
are the sum and the number of the images of each cluster: two small arrays of different
shape, which travel together in one `all_reduce_many`.
"""

import sys

import numpy as np
from sklearn.datasets import load_digits

import collectives

CLUSTERS, MOST_ROUNDS = 10, 100


def nearest(images, centres):
    """Return, for each image, the number of the nearest centre."""
    return ((images[:, np.newaxis] - centres) ** 2).sum(axis=2).argmin(axis=1)


def sums_and_counts(images, assigned):
    """Return the sum (clusters, pixels) and number (clusters,) of assigned images."""
    members = assigned == np.arange(CLUSTERS)[:, np.newaxis]
    return members.astype(images.dtype) @ images, members.sum(axis=1)


def cluster(images, centres, add_up):
    """Return assignments and rounds; `add_up` turns parts into totals."""
    for rounds in range(1, MOST_ROUNDS + 1):
        assigned = nearest(images, centres)
        sums, counts = add_up(sums_and_counts(images, assigned))
        # A cluster that has lost all its images stays where it was.
        means = sums / np.maximum(counts, 1)[:, np.newaxis]
        moved = np.where(counts[:, np.newaxis] > 0, means, centres)
        if np.array_equal(moved, centres):
            return assigned, rounds
        centres = moved
    sys.exit(f"the centres still move after {MOST_ROUNDS} rounds")


def main():
    """Cluster over the ranks, and compare with the same thing on rank 0 alone."""
    comm = collectives.world()
    digits = load_digits() if comm.rank == 0 else None
    whole = digits.data if comm.rank == 0 else None
    images = comm.scatter(whole)
    start = whole[:CLUSTERS] if comm.rank == 0 else np.empty((CLUSTERS, 64))
    start = comm.broadcast(start)

    assigned, rounds = cluster(images, start, comm.all_reduce_many)
    assigned = comm.gather(assigned)

    if comm.rank == 0:
        # Pixels are whole numbers, so that their sums are exact in any order, and all
        # that follows is the same to the last bit.
        wanted, wanted_rounds = cluster(whole, start, add_up=lambda parts: parts)
        print(f"{len(whole)} images in {CLUSTERS} clusters on {comm.size} rank(s)")
        print(f"{rounds} rounds until no centre moved")
        for number in range(CLUSTERS):
            labels = np.bincount(digits.target[assigned == number], minlength=10)
            print(
                f"cluster {number}: {labels.sum():3d} images, "
                f"{labels.max() / labels.sum():4.0%} of them of {labels.argmax()}"
            )
        if not (np.array_equal(assigned, wanted) and rounds == wanted_rounds):
            sys.exit("the serial program gives other clusters")
        print("every image is where the serial program puts it")


if __name__ == "__main__":
    main()
