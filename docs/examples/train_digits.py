"""Train a small network on handwritten digits, on as many ranks as you like.

mpirun -n 4 python docs/examples/train_digits.py

Each rank holds a copy of the network and takes its part of every batch. The gradients
are summed over the ranks, so that all copies make the same step and stay equal bit for
bit. With any number of ranks the losses are the same, up to rounding.
"""

import os

# Before NumPy is imported: ranks share the cores, and if the linear algebra of each one
# also started a thread per core, they would get in one another's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import collectives
import strategy as distribute

HIDDEN, MOMENTUM, TEST_ROWS, WANTED_ACCURACY = 128, 0.9, 360, 0.97


def load_data(seed=0):
    """Return training and test images (n, 64) in 0..1 with labels (n,)."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    images, labels = images[order] / 16, labels[order]
    train, test = slice(TEST_ROWS, None), slice(TEST_ROWS)
    return (images[train], labels[train]), (images[test], labels[test])


def initial_weights(seed=0):
    """Return the first values of the weights and biases of 64-HIDDEN-10."""
    random = np.random.default_rng(seed)
    for rows, columns in ((64, HIDDEN), (HIDDEN, 10)):
        yield random.normal(scale=np.sqrt(2 / rows), size=(rows, columns))
        yield np.zeros(columns)


def predict(weights, images):
    """Return the hidden layer's output and the probability of each digit."""
    w1, b1, w2, b2 = weights
    hidden = np.maximum(images @ w1 + b1, 0)
    scores = hidden @ w2 + b2
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, powers / powers.sum(axis=1, keepdims=True)


def loss_and_gradients(weights, images, labels):
    """Return the loss of each image, and the gradients of the sum of the losses."""
    hidden, probability = predict(weights, images)
    rows = np.arange(len(labels))
    losses = -np.log(probability[rows, labels])
    slope = probability
    slope[rows, labels] -= 1  # of the losses by the scores
    hidden_slope = (slope @ weights[2].T) * (hidden > 0)
    return losses, [
        images.T @ hidden_slope,
        hidden_slope.sum(axis=0),
        hidden.T @ slope,
        slope.sum(axis=0),
    ]


def main():
    """Train, test, and check that all ranks end with the same weights."""
    options = arguments()
    strategy = distribute.MultiWorkerMirroredStrategy()

    with strategy.scope():  # variables made here start with rank 0's values everywhere
        weights = [distribute.Variable(value) for value in initial_weights()]
        speeds = [distribute.Variable(np.zeros(w.shape)) for w in weights]

    train, test = map(distribute.data.Dataset.from_tensor_slices, load_data())
    train = train.shuffle(seed=0).batch(options.global_batch)
    train = strategy.experimental_distribute_dataset(train)
    test = strategy.experimental_distribute_dataset(test.batch(options.global_batch))

    def train_step(batch):  # runs on every rank, with its own part of the batch
        losses, gradients = loss_and_gradients(weights, *batch)
        replica = distribute.get_replica_context()
        gradients = replica.all_reduce(distribute.ReduceOp.SUM, gradients)
        for weight, speed, gradient in zip(weights, speeds, gradients, strict=True):
            # Divided by the global batch: the parts of the ranks may differ in size.
            speed.assign(MOMENTUM * speed - gradient / options.global_batch)
            weight.assign_add(options.learning_rate * speed)
        return losses.sum() / options.global_batch

    def count_correct(batch):
        images, labels = batch
        _, probability = predict(weights, images)
        return np.sum(probability.argmax(axis=1) == labels)

    def total(step, dataset, after_step=lambda: None):
        """Return the sum of what `step` returns, over all ranks and steps."""
        result = 0.0
        for batch in dataset:
            part = strategy.run(step, args=(batch,))
            result += float(strategy.reduce(distribute.ReduceOp.SUM, part, axis=None))
            after_step()
        return result

    history = []
    rank = collectives.world().rank
    with progress_bar(options.epochs * len(train), shown=rank == 0) as bar:
        for epoch in range(1, options.epochs + 1):
            history.append(total(train_step, train, bar.update) / len(train))
            if rank == 0:
                bar.write(f"epoch {epoch:2d}  loss {history[-1]:.6f}")
    if rank == 0 and options.losses:
        options.losses.write_text(json.dumps(history))
    if rank == 0:
        print(f"trained on {' '.join(strategy.extended.worker_devices)}")
    sys.exit(report(rank, total(count_correct, test) / TEST_ROWS, weights))


def report(rank, accuracy, weights):
    """Print what came out, on rank 0; return the exit status, 0 if all is well."""
    digest = hashlib.sha256(b"".join(w.numpy().tobytes() for w in weights)).hexdigest()
    digests = collectives.world().all_gather_object(digest[:16])
    equal = len(set(digests)) == 1
    if rank == 0:
        print(f"test accuracy {accuracy:.4f} (wanted: {WANTED_ACCURACY} or more)")
        if equal:
            print(f"weights bit-identical on {len(digests)} rank(s): {digests[0]}")
        else:
            print(f"weights differ between ranks: {' '.join(digests)}")
    return 0 if equal and accuracy >= WANTED_ACCURACY else 1


def progress_bar(steps, shown):
    """Return a bar that moves once a step.

    It goes to standard output, where the lines go too: mpirun forwards the two streams
    each at its own time, and a bar on the other one would cut lines in two. The size is
    given because what mpirun puts in the terminal's place has none.
    """
    return tqdm(
        total=steps,
        desc="training",
        unit="step",
        file=sys.stdout,
        ncols=76,
        nrows=20,
        mininterval=0.5,
        disable=not shown,
    )


def arguments():
    """Return the options from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--global-batch", type=int, default=128, help="of all ranks")
    parser.add_argument("--learning-rate", type=float, default=0.5)
    parser.add_argument("--losses", type=Path, help="write each epoch's loss as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
