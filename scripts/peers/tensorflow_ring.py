"""Time all_reduce by TensorFlow: RING collectives between worker processes."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

from timing import PACK_BYTES, Seconds, bytes_of, measure, run

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")


def title() -> str:
    """Return what is measured."""
    from importlib.metadata import version

    return f"TensorFlow {version('tensorflow-cpu')} RING, 25 MiB packs"


def body(
    rank: int,
    ranks: int,
    sizes: list[int],
    shapes: list[tuple[int, ...]],
    folder: Path,
) -> Seconds:
    """Be one worker."""
    workers = [f"127.0.0.1:{port}" for port in meet(rank, ranks, folder)]
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
    )
    import tensorflow as tf

    options = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=PACK_BYTES,
        implementation=tf.distribute.experimental.CommunicationImplementation.RING,
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

    @tf.function  # type: ignore[misc]
    def all_reduce(arrays):  # type: ignore[no-untyped-def]
        def replica():  # type: ignore[no-untyped-def]
            # An identity copies nothing, but has the device that all_reduce asks for.
            values = [tf.identity(x) for x in arrays]
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, values, options)

        return strategy.run(replica)

    (total,) = all_reduce([tf.ones(5)])
    assert (total.numpy() == ranks).all(), total
    nothing = [tf.zeros(1)]
    seconds = {}
    for nbytes in sizes:
        arrays = [tf.zeros(nbytes // 4)]
        seconds[str(nbytes)] = measure(
            nbytes,
            lambda arrays=arrays: all_reduce(arrays),
            lambda: all_reduce(nothing),
        )
    gradients = [tf.zeros(shape) for shape in shapes]
    seconds["shapes"] = measure(
        bytes_of(shapes), lambda: all_reduce(gradients), lambda: all_reduce(nothing)
    )
    return seconds


def meet(rank: int, ranks: int, folder: Path) -> list[int]:
    """Find a free port, tell the others, and return everybody's."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        draft = folder / f"port.{rank}.draft"
        draft.write_text(str(free.getsockname()[1]))
        draft.replace(folder / f"port.{rank}")
    files = [folder / f"port.{other}" for other in range(ranks)]
    while not all(file.exists() for file in files):
        time.sleep(0.02)
    return [int(file.read_text()) for file in files]


if __name__ == "__main__":
    run(title, body)
