"""Which algorithm a call gets: what was asked for, or what fits."""

from types import SimpleNamespace

import numpy as np
import pytest
from harness.threads import run_ranks

import collectives
from collectives import ALGORITHMS, Choice, InvalidArgumentError, UnsupportedError
from collectives.algorithms import REDUCING, TABLE
from collectives.eligibility import can_race
from collectives.kernels import kernel_for
from collectives.options import Options
from collectives.racing import Race
from collectives.selection import check_option
from collectives.selection import choose as choose_under
from collectives.tables import Tuning
from collectives.topology import MPIFacts, Topology

HOSTS = {True: ("a",), False: ("a", "b", "c")}
HOST_OF = {True: (0, 0, 0), False: (0, 1, 2)}


def group(native, one_board, no_window=""):
    topology = Topology(0, HOSTS[one_board], HOST_OF[one_board], cores=3)
    return SimpleNamespace(
        native=native,
        topology=topology,
        rank=0,
        size=3,
        one_board=one_board,
        no_window=no_window,
        not_direct="",
        tuning=Tuning((), topology),
        race=Race(),
    )


WITH_MPI = group(object(), True)
FAR_APART = group(object(), False)
WITHOUT_MPI = group(None, False)
NO_WINDOW = group(object(), True, "no memory")
SUM = kernel_for("sum", np.dtype("f4"))
MAX = kernel_for("max", np.dtype("f4"))
SIZES = [0, 1, 1 << 10, 1 << 16, 1 << 20, 1 << 26]
KERNELS = {name: SUM if name in REDUCING else None for name in ALGORITHMS}


def choose(collective, nbytes, kernel, group, name, **options):
    return choose_under(collective, nbytes, kernel, group, Options(**options), name)


@pytest.mark.parametrize("collective", ALGORITHMS)
def test_what_is_asked_for_is_taken(collective):
    for name in ALGORITHMS[collective][1:]:
        for nbytes in SIZES:
            chosen = choose(collective, nbytes, KERNELS[collective], WITH_MPI, name)
            assert chosen == Choice(name, "asked for")


@pytest.mark.parametrize("collective", ALGORITHMS)
@pytest.mark.parametrize("group", [WITH_MPI, FAR_APART, WITHOUT_MPI])
@pytest.mark.parametrize("nbytes", SIZES)
def test_auto_takes_one_that_can_and_says_why(collective, group, nbytes):
    chosen = choose(collective, nbytes, KERNELS[collective], group, "auto")
    assert chosen.algorithm in ALGORITHMS[collective][1:]
    assert str(nbytes) in chosen.reason
    if group is WITHOUT_MPI:
        assert chosen.algorithm != "native"


def test_auto_takes_few_steps_for_little_and_few_bytes_for_much():
    small = choose("all_reduce", 8, SUM, WITHOUT_MPI, "auto")
    large = choose("all_reduce", 1 << 26, SUM, WITHOUT_MPI, "auto")
    assert small.algorithm == "recursive_doubling"
    assert large.algorithm == "hierarchical"


@pytest.mark.parametrize("name", ["rnig", "", "AUTO", "tree"])
def test_an_unknown_algorithm_is_an_error_that_lists_the_known(name):
    with pytest.raises(InvalidArgumentError) as caught:
        choose("all_reduce", 8, SUM, WITH_MPI, name)
    assert str(caught.value) == (
        f"unknown algorithm {name!r} for all_reduce; "
        f"known: {' '.join(ALGORITHMS['all_reduce'])}"
    )


SHORT = ["int8", "uint8", "int16", "uint16"]
NARROW_OR_FLOAT = ["float16", "float32", "float64", "longdouble"]


@pytest.mark.parametrize(
    ("op", "dtype"),
    [(op, dtype) for op in ("min", "max") for dtype in NARROW_OR_FLOAT]
    + [("sum", dtype) for dtype in SHORT],
)
def test_native_is_not_taken_where_an_mpi_would_be_wrong(op, dtype):
    kernel = kernel_for(op, np.dtype(dtype))
    for nbytes in SIZES:
        chosen = choose("all_reduce", nbytes, kernel, WITH_MPI, "auto")
        assert chosen.algorithm != "native"
    with pytest.raises(UnsupportedError, match="all_reduce by native: "):
        choose("all_reduce", 8, kernel, WITH_MPI, "native")


@pytest.mark.parametrize(
    ("op", "dtype"),
    [("max", "int32"), ("sum", "float16"), ("sum", "int32"), ("and", "bool")],
)
def test_native_is_taken_where_it_is_right(op, dtype):
    kernel = kernel_for(op, np.dtype(dtype))
    assert choose("all_reduce", 8, kernel, WITH_MPI, "native").algorithm == "native"


def test_native_is_not_taken_where_an_mpi_would_crash():
    uneven = group(object(), False)
    intel = MPIFacts("Intel MPI", "2021.18", "", "multiple")
    uneven.topology = Topology(0, ("a", "b"), (0, 0, 1), cores=3, mpi=intel)
    with pytest.raises(UnsupportedError, match="different numbers of ranks"):
        choose("reduce", 8, SUM, uneven, "native")
    assert choose("reduce", 8, SUM, FAR_APART, "native").algorithm == "native"
    assert choose("all_reduce", 8, SUM, uneven, "native").algorithm == "native"


def test_native_without_an_mpi_is_an_error():
    with pytest.raises(UnsupportedError, match=r"by native: .* without MPI"):
        choose("all_reduce", 8, SUM, WITHOUT_MPI, "native")


@pytest.mark.parametrize("collective", sorted(REDUCING))
@pytest.mark.parametrize("nbytes", SIZES)
def test_deterministic_takes_only_what_combines_in_order(collective, nbytes):
    def ask(name):
        return choose(collective, nbytes, SUM, WITH_MPI, name, deterministic=True)

    assert TABLE[collective][ask("auto").algorithm].in_order
    for name in ALGORITHMS[collective][1:]:
        if TABLE[collective][name].in_order:
            assert ask(name).algorithm == name
        else:
            with pytest.raises(UnsupportedError, match="order of ranks"):
                ask(name)


def test_a_function_as_op_is_used_in_order():
    kernel = kernel_for(np.hypot, np.dtype("f4"))
    name = choose("all_reduce", 8, kernel, WITH_MPI, "auto").algorithm
    assert TABLE["all_reduce"][name].in_order
    with pytest.raises(UnsupportedError, match="rank order"):
        choose("all_reduce", 8, kernel, WITH_MPI, "ring")


def test_the_mpi_gets_no_more_than_its_limit():
    def ask(nbytes, name):
        return choose("broadcast", nbytes, None, NO_WINDOW, name, mpi_limit_bytes=1024)

    assert ask(1024, "auto").algorithm == ask(1024, "native").algorithm == "native"
    assert ask(1025, "auto").algorithm != "native"
    with pytest.raises(UnsupportedError, match="1025 bytes; one MPI call gets 1024"):
        ask(1025, "native")


def test_what_shares_memory_goes_through_it():
    for collective in ALGORITHMS:
        choice = choose(collective, 8, KERNELS[collective], WITH_MPI, "auto")
        assert choice == Choice("shared", "8 bytes; table for any MPI, one host")


@pytest.mark.parametrize("collective", ALGORITHMS)
def test_those_that_race_give_the_same_bits(collective):
    kernel, rows = KERNELS[collective], TABLE[collective]
    for nbytes in SIZES:
        rivals = choose(collective, nbytes, kernel, WITH_MPI, "auto").rivals
        assert kernel is None or all(rows[name].in_order for name in rivals)


def test_narrow_floats_race_only_where_their_sums_stay():
    said, names = "shared+direct+chain+native", {}
    for dtype in (np.float16, np.float32):
        kernel = kernel_for("sum", np.dtype(dtype))
        arguments = said, "all_reduce", 1 << 20, kernel, WITH_MPI, Options()
        names[dtype] = can_race(*arguments)
    assert names[np.float16] == ("shared", "direct")
    assert names[np.float32] == ("shared", "direct", "chain")


def test_nobody_reads_others_memory_where_that_is_not_allowed():
    far = group(object(), True)
    far.not_direct = "ranks [1] may not read the memory of the others"
    choice = choose("all_reduce", 1 << 26, SUM, far, "auto")
    assert (choice.algorithm, choice.rivals) == ("shared", ())
    with pytest.raises(UnsupportedError, match="may not read"):
        choose("all_reduce", 1 << 26, SUM, far, "direct")


def test_small_ones_travel_with_the_agreement_across_hosts():
    near, far = (
        choose("all_reduce", 8, SUM, group, "auto").algorithm
        for group in (NO_WINDOW, FAR_APART)
    )
    assert (near, far) == ("native", "recursive_doubling")


def test_an_option_must_be_an_algorithm_of_some_collective():
    check_option(Options(algorithm="tree"))
    with pytest.raises(InvalidArgumentError, match="unknown algorithm 'rign'"):
        check_option(Options(algorithm="rign"))


def test_the_communicators_option_counts_where_a_call_names_none():
    def body(comm):
        ring = comm.with_options(algorithm="ring")
        assert ring.choose("all_reduce", 8, np.float32).algorithm == "ring"
        assert comm.choose("all_reduce", 8, np.float32).algorithm != "ring"
        return ring.all_reduce(1.0, algorithm="recursive_doubling").item()

    assert run_ranks(2, body) == [2.0, 2.0]


@pytest.mark.parametrize("collective", ["broadcast", "all_gather"])
def test_choose_asks_for_no_op_where_nothing_is_reduced(collective):
    (chosen,) = run_ranks(1, lambda comm: comm.choose(collective, 8, bool))
    assert chosen.algorithm in ALGORITHMS[collective]


def test_choose_refuses_what_the_call_would_refuse():
    with pytest.raises(UnsupportedError, match="op prod of dtype bool"):
        run_ranks(1, lambda comm: comm.choose("all_reduce", 8, bool, op="prod"))


@pytest.mark.parametrize("name", ["barrier", "allreduce", ""])
def test_choose_of_an_unknown_collective_lists_the_known(name):
    with pytest.raises(InvalidArgumentError) as caught:
        run_ranks(1, lambda comm: comm.choose(name, 8, np.float32))
    for known in collectives.ALGORITHMS:
        assert known in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("all_reduce", -8), "nbytes is -8; wanted 0 bytes or more"),
        (("all_reduce", "8"), "nbytes is '8'"),
        (("all_reduce", 1.5), "nbytes is 1.5"),
        (("all-reduce", 8), "unknown collective 'all-reduce'; known: all_reduce"),
        ((["all_reduce"], 8), "unknown collective"),
    ],
)
def test_odd_questions_are_refused(arguments, text):
    with pytest.raises(InvalidArgumentError) as caught:
        run_ranks(1, lambda comm: comm.choose(*arguments))
    assert text in str(caught.value)
