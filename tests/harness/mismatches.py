"""Calls that differ between the ranks, and what the error must say about them.

In each, one rank is the odd one. `keep(array)` returns its argument, after noting what
is in it: nothing of that may change, because no result may be written.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from collectives import Communicator, MismatchError

Keep = Callable[[Any], Any]


class Mismatch(NamedTuple):
    """One way to disagree."""

    call: Callable[[Communicator, bool, Keep], Any]
    """`(comm, odd, keep)`."""
    field: str
    even: str
    """What the error says of the others; `odd` of the odd rank."""
    odd: str


def ones(count: int = 3, dtype: str = "float32") -> Any:
    return np.ones(count, dtype)


MISMATCHES: dict[str, Mismatch] = {
    "shape": Mismatch(
        lambda comm, odd, keep: comm.all_reduce(
            x := keep(ones(4 if odd else 3)), out=x
        ),
        "shape",
        "shape (3,)",
        "shape (4,)",
    ),
    "shape of as many elements": Mismatch(
        lambda comm, odd, keep: comm.all_reduce(
            ones(6).reshape((2, 3) if odd else (3, 2)),
            out=keep(ones(6).reshape((2, 3) if odd else (3, 2))),
        ),
        "shape",
        "shape (3, 2)",
        "shape (2, 3)",
    ),
    "dtype": Mismatch(
        lambda comm, odd, keep: comm.all_reduce(
            x := keep(ones(3, "int32" if odd else "float32")), out=x
        ),
        "dtype",
        "float32",
        "int32",
    ),
    "op": Mismatch(
        lambda comm, odd, keep: comm.all_reduce(
            x := keep(ones()), "max" if odd else "sum", out=x
        ),
        "op",
        "sum",
        "max",
    ),
    "root": Mismatch(
        lambda comm, odd, keep: comm.broadcast(
            x := keep(ones()), root=1 if odd else 0, out=x
        ),
        "root",
        "root 0",
        "root 1",
    ),
    "root of reduce": Mismatch(
        lambda comm, odd, keep: comm.reduce(
            x := keep(ones()), root=1 if odd else 0, out=x
        ),
        "root",
        "root 0",
        "root 1",
    ),
    "collective": Mismatch(
        lambda comm, odd, keep: (
            comm.barrier() if odd else comm.all_reduce(x := keep(ones()), out=x)
        ),
        "collective",
        "all_reduce(float32, sum, shape (3,)",
        "barrier",
    ),
    "algorithm": Mismatch(
        lambda comm, odd, keep: comm.all_reduce(
            x := keep(ones()),
            out=x,
            algorithm="ring" if odd else "recursive_doubling",
        ),
        "algorithm",
        "recursive_doubling",
        "ring",
    ),
    "axis": Mismatch(
        lambda comm, odd, keep: comm.all_gather(ones(4).reshape(2, 2), axis=int(odd)),
        "shape",
        "axis 0",
        "axis 1",
    ),
    "sizes beside the gathered axis": Mismatch(
        lambda comm, odd, keep: comm.all_gather(np.ones((2, 5 if odd else 3))),
        "shape",
        "shape (-1, 3)",
        "shape (-1, 5)",
    ),
    "one rank's dtype has no such op": Mismatch(
        lambda comm, odd, keep: comm.all_reduce(
            x := keep(ones(3, "bool" if odd else "int8")), out=x
        ),
        "invalid",
        "all_reduce(int8",
        "op sum of dtype bool; that dtype has:",
    ),
    "one rank's op": Mismatch(
        lambda comm, odd, keep: comm.all_reduce(
            x := keep(ones()), "median" if odd else "sum", out=x
        ),
        "invalid",
        "all_reduce(float32, sum",
        "unknown op 'median'; known:",
    ),
    "one rank's algorithm": Mismatch(
        lambda comm, odd, keep: comm.all_reduce(
            x := keep(ones()), out=x, algorithm="rnig" if odd else None
        ),
        "invalid",
        "all_reduce(float32, sum",
        "unknown algorithm 'rnig' for all_reduce; known: auto",
    ),
    "one rank's out": Mismatch(
        lambda comm, odd, keep: comm.all_reduce(
            ones(), out=keep(ones(3, "float64" if odd else "float32"))
        ),
        "invalid",
        "all_reduce(float32, sum",
        "out has dtype float64; wanted float32",
    ),
    "one rank's root": Mismatch(
        lambda comm, odd, keep: comm.broadcast(
            x := keep(ones()), root=99 if odd else 0, out=x
        ),
        "invalid",
        "root 0",
        "root is 99; wanted a rank from 0 to",
    ),
    "one rank passes no array": Mismatch(
        lambda comm, odd, keep: comm.all_reduce(None if odd else ones()),
        "invalid",
        "all_reduce(float32",
        "dtype object; wanted bool, integer, float or complex",
    ),
    "one rank's list is ragged": Mismatch(
        lambda comm, odd, keep: comm.all_reduce([[1.0], [1.0] * (1 + odd)]),
        "invalid",
        "all_reduce(float64, sum, shape (2, 1)",
        "ValueError: ",
    ),
    "length of the list": Mismatch(
        lambda comm, odd, keep: comm.all_reduce_many(
            x := [keep(ones()) for _ in range(2 + odd)], out=x
        ),
        "shape",
        "all_reduce_many",
        "all_reduce_many",
    ),
    "dtype in the list": Mismatch(
        lambda comm, odd, keep: comm.all_reduce_many(
            x := [keep(ones()), keep(ones(3, "int8" if odd else "int16"))], out=x
        ),
        "shape",
        "int16",
        "int8",
    ),
    "packs": Mismatch(
        lambda comm, odd, keep: comm.all_reduce_many(
            x := [keep(ones())], out=x, bytes_per_pack=1024 if odd else 2048
        ),
        "packs",
        "bytes_per_pack 2048",
        "bytes_per_pack 1024",
    ),
    "members of a group": Mismatch(
        lambda comm, odd, keep: comm.group([0] if odd else [1, 0]),
        "members",
        "group(members [1, 0])",
        "group(members [0])",
    ),
    "one rank's list of members": Mismatch(
        lambda comm, odd, keep: comm.group([0, 0] if odd else [0]),
        "invalid",
        "group(members [0])",
        "ranks is [0, 0]; wanted at least one rank, none of them twice",
    ),
    "one rank's splits": Mismatch(
        lambda comm, odd, keep: comm.all_to_all(ones(), splits=3 if odd else None),
        "invalid",
        "all_to_all(float32",
        "splits is 3; wanted ",
    ),
    "one rank's out is no list": Mismatch(
        lambda comm, odd, keep: comm.all_reduce_many(
            [ones()], out=3 if odd else [keep(ones())]
        ),
        "invalid",
        "all_reduce_many(list, sum",
        "out is a int; wanted a list of arrays",
    ),
    "objects": Mismatch(
        lambda comm, odd, keep: (
            comm.all_gather_object(1) if odd else comm.broadcast_object(1)
        ),
        "collective",
        "broadcast_object(root 0)",
        "all_gather_object",
    ),
    "an object that cannot be pickled": Mismatch(
        lambda comm, odd, keep: comm.all_gather_object((lambda: 1) if odd else 1),
        "invalid",
        "all_gather_object",
        "pickle",
    ),
}


def disagree(comm: Communicator, name: str, odd: int) -> str:
    """Make the calls of a mismatch; return the error's text.

    Raises:
        AssertionError: something else than a MismatchError came, an array changed, or
            the communicator cannot be used any more.
    """
    kept = []

    def keep(array: Any) -> Any:
        kept.append((array, array.copy()))
        return array

    text = ""
    try:
        MISMATCHES[name].call(comm, comm.rank == odd, keep)
    except MismatchError as error:
        text = str(error)
    assert text, "no MismatchError was raised"
    for array, before in kept:
        assert (array == before).all(), "an array was written"
    assert comm.all_reduce(np.float64(1)).item() == comm.size, "the next call is wrong"
    return text


def check_text(name: str, odd: int, text: str, size: int) -> None:
    """Make sure that an error names the field, both values, and who has which."""
    mismatch = MISMATCHES[name]
    others = [rank for rank in range(size) if rank != odd]
    label = "rank" if len(others) == 1 else "ranks"
    even_at = text.find(f"; {label} {' '.join(map(str, others))}: ")
    odd_at = text.find(f"; rank {odd}: ")
    assert f"the ranks disagree on {mismatch.field};" in text, text
    assert min(even_at, odd_at) > 0, text
    assert mismatch.even in _part(text, even_at, odd_at), text
    assert mismatch.odd in _part(text, odd_at, even_at), text
    assert "\n" not in text


def _part(text: str, start: int, other: int) -> str:
    """Return what follows `start`, up to `other` if that comes later."""
    return text[start : other if other > start else len(text)]
