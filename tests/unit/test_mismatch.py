"""Where ranks make different calls, all of them raise the same error."""

import numpy as np
import pytest
from harness.mismatches import MISMATCHES, check_text, disagree
from harness.threads import WORLDS, outcome, run_ranks

from collectives import InvalidArgumentError, MismatchError, UnsupportedError


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", MISMATCHES)
def test_all_ranks_raise_the_same(world, name):
    for size, odd in ((2, 0), (3, 2), (5, 1)):
        texts = run_ranks(size, lambda comm, odd=odd: disagree(comm, name, odd), world)
        assert len(set(texts)) == 1, texts
        check_text(name, odd, texts[0], size)


@pytest.mark.parametrize("world", WORLDS)
def test_calls_in_another_order_are_a_mismatch_each(world):
    def body(comm):
        def one():
            return comm.all_reduce(np.ones(2))

        def two():
            return comm.barrier()

        calls = (two, one) if comm.rank == 1 else (one, two)
        errors = [outcome(call) for call in calls]
        comm.barrier()
        return [type(error) for error in errors], [str(error) for error in errors]

    told = run_ranks(3, body, world)
    assert told[0] == told[1] == told[2]
    kinds, texts = told[0]
    assert kinds == [MismatchError] * 2
    assert texts[0].startswith("call #1: the ranks disagree on collective; ranks 0 2: ")
    assert texts[1].startswith("call #2: the ranks disagree on collective; ranks 0 2: ")


@pytest.mark.parametrize("world", WORLDS)
def test_three_ways_of_calling_are_all_named(world):
    def body(comm):
        return str(outcome(lambda: comm.all_reduce(np.ones(2 + comm.rank // 2))))

    (text,) = set(run_ranks(5, body, world))
    assert "ranks 0 1: all_reduce(float64, sum, shape (2,)" in text
    assert "ranks 2 3: all_reduce(float64, sum, shape (3,)" in text
    assert "rank 4: all_reduce(float64, sum, shape (4,)" in text


class Address:
    """Something whose repr differs between ranks, as a default one does."""

    def __repr__(self):
        return f"<test_mismatch.Address object at {id(self):#x}>"


WRONG_EVERYWHERE = [
    (lambda comm: comm.all_reduce(1.0, "median"), InvalidArgumentError, "unknown op"),
    (
        lambda comm: comm.all_reduce(1.0, algorithm="rnig"),
        InvalidArgumentError,
        "unknown algorithm 'rnig' for all_reduce; known: auto native",
    ),
    (lambda comm: comm.all_reduce("text"), UnsupportedError, "dtype <U4"),
    (
        lambda comm: comm.all_reduce(np.ones(2), out=np.ones(3)),
        InvalidArgumentError,
        "out has shape",
    ),
    (
        lambda comm: comm.all_reduce(np.ones(2, int), "mean", out=np.ones(2, int)),
        InvalidArgumentError,
        "out has dtype int64; wanted float64",
    ),
    (
        lambda comm: comm.reduce(1.0, root=comm.size),
        InvalidArgumentError,
        "root is 3; wanted a rank from 0 to 2",
    ),
    (
        lambda comm: comm.broadcast(1.0, root=-1),
        InvalidArgumentError,
        "root is -1; wanted a rank",
    ),
    (
        lambda comm: comm.all_gather(np.ones(2), axis=1),
        InvalidArgumentError,
        "axis is 1; wanted one of the 1 axes",
    ),
    (
        lambda comm: comm.all_gather(np.ones(2), axis=-2),
        InvalidArgumentError,
        "axis is -2; wanted",
    ),
    (
        lambda comm: comm.all_gather(np.ones(2), out=np.ones(5)),
        InvalidArgumentError,
        "rank 0: out has length 5 along axis 0; wanted 6, the sum of [2, 2, 2]",
    ),
    (
        lambda comm: comm.all_gather(np.ones(2), out=np.ones((6, 1))),
        InvalidArgumentError,
        "out has shape (6, 1); wanted",
    ),
    (
        lambda comm: comm.all_reduce_many([1.0, 2.0], out=[np.ones(())]),
        InvalidArgumentError,
        "out has 1 arrays; wanted 2",
    ),
    (
        lambda comm: comm.all_reduce_many([1.0], bytes_per_pack=-1),
        InvalidArgumentError,
        "bytes_per_pack is -1; wanted 0 (automatic) or more",
    ),
    (
        lambda comm: comm.all_to_all(np.ones(3), splits=3),
        InvalidArgumentError,
        "splits is 3; wanted 3 lengths with the sum 3",
    ),
    (
        lambda comm: comm.reduce_scatter(np.ones(3), splits=[1.5, 1, 1]),
        InvalidArgumentError,
        "splits is [1.5, 1, 1]; wanted 3 lengths",
    ),
    (
        lambda comm: comm.all_gather(np.ones(2), axis="x"),
        InvalidArgumentError,
        "axis is 'x'; wanted one of the 1 axes",
    ),
    (
        lambda comm: comm.broadcast(1.0, root=Address()),
        InvalidArgumentError,
        "root is <test_mismatch.Address object>; wanted a rank",
    ),
    (
        lambda comm: comm.all_reduce(1.0, Address()),
        InvalidArgumentError,
        "unknown op <test_mismatch.Address object>; known:",
    ),
    (lambda comm: comm.group(0), InvalidArgumentError, "ranks is 0; wanted a list"),
    (
        lambda comm: comm.group([0, 0]),
        InvalidArgumentError,
        "ranks is [0, 0]; wanted at least one rank, none of them twice",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), WRONG_EVERYWHERE)
def test_what_is_wrong_in_the_same_way_everywhere_is_told_as_such(call, error, text):
    def body(comm):
        caught = outcome(lambda: call(comm))
        comm.barrier()
        return type(caught), str(caught)

    told = run_ranks(3, body)
    assert told == [told[0]] * 3
    assert told[0][0] is error
    assert text in told[0][1]


@pytest.mark.parametrize("world", WORLDS)
def test_one_rank_s_out_of_the_wrong_length_is_told_to_all(world):
    """The length of a gathered array is known only after the ranks have agreed."""

    def body(comm):
        out = np.full((comm.rank == 1) + 6, -1.0)
        caught = outcome(lambda: comm.all_gather(np.ones(2), out=out))
        comm.barrier()
        return type(caught), str(caught), bool((out == -1).all())

    told = run_ranks(3, body, world)
    assert told == [told[0]] * 3
    kind, text, untouched = told[0]
    assert kind is InvalidArgumentError
    assert text.startswith("rank 1: out has length 7 along axis 0; wanted 6")
    assert untouched


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize("kind", [np.int64, np.int8, bool])
def test_a_root_may_be_any_integer(collective, kind):
    """Equal numbers of different types are the same root."""

    def body(comm):
        root = kind(1) if comm.rank == 0 else 1
        return getattr(comm, collective)(np.array([comm.rank]), root=root)

    results = run_ranks(2, body)
    assert results[1].tolist() == [1]


def test_an_axis_may_be_any_integer():
    def body(comm):
        axis = np.int64(1) if comm.rank == 0 else -1
        return comm.all_gather(np.array([[comm.rank], [7]]), axis).tolist()

    assert run_ranks(2, body) == [[[0, 1], [7, 7]]] * 2


@pytest.mark.parametrize("root", [0.5, "0", None])
def test_a_root_that_is_no_integer_is_refused_everywhere(root):
    def body(comm):
        caught = outcome(lambda: comm.broadcast(np.ones(2), root=root))
        comm.barrier()
        return caught

    for caught in run_ranks(2, body):
        assert isinstance(caught, (TypeError, ValueError)), caught


def test_without_the_check_hosts_are_not_compared_but_a_host_still_is():
    def body(comm):
        text = str(outcome(lambda: comm.all_reduce(np.ones(2 + comm.rank))))
        comm.barrier()
        return text

    (text,) = set(run_ranks(2, body, "one board", check="off"))
    assert "the ranks disagree on shape" in text

    def same(comm):
        return comm.all_reduce(np.ones(2)).tolist()

    assert run_ranks(4, same, "two hosts", check="off") == [[4, 4]] * 4
