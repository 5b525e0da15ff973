"""Tables of `ringfold tune`: written and read back, and where each one counts."""

import json

import pytest

from collectives import InvalidArgumentError
from collectives.algorithms import TABLE
from collectives.costs import BY, KINDS, Costs
from collectives.moves import Place
from collectives.ranges import names, parse
from collectives.tables import (
    DEFAULT,
    FOLDER,
    SHIPPED,
    Table,
    Tuning,
    default,
    merged,
    nearest,
    read,
    shipped,
    written,
)
from collectives.topology import MPIFacts, Topology

MPICH = MPIFacts("MPICH", "5.0.2", "MPICH", "multiple")


def table(hosts=1, ranks=4, mpi="MPICH", caches="one", us=7.0):
    rules = {"all_reduce": parse("shared:0-8K;ring+native:8K-max")}
    curves = {
        "call": ((0.0, us),),
        "all_reduce by native": ((8.0, us), (1024.0, 2 * us)),
    }
    return Table(
        mpi, hosts, ranks, caches, rules, Costs(curves), {"date": "2026-01-02"}
    )


def test_what_is_written_is_read_back():
    tables = [table(), table(2, 8)]
    text = written(tables)
    assert read(text) == tuple(tables)
    assert '"all_reduce by native": [[8, 7.0], [1024, 14.0]]' in text


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "tables": [{}]}', "5"]
)
def test_what_is_no_table_is_an_error_that_names_the_file(text):
    with pytest.raises(InvalidArgumentError, match=r"my\.json is not a table"):
        read(text, "my.json")


def test_another_format_is_an_error():
    with pytest.raises(InvalidArgumentError, match="has format 2; wanted 1: tune"):
        read(json.dumps({"format": 2, "tables": []}))


def test_a_new_table_replaces_the_one_for_the_same_place():
    old = [table(us=1), table(ranks=2, us=2)]
    new = merged(old, table(us=3))
    assert [(one.ranks, one.costs.curves["call"][0][1]) for one in new] == [
        (2, 2),
        (4, 3),
    ]


def ranks_of(tables, mpi, place, caches="one"):
    return [(t.mpi, t.hosts, t.ranks) for t in nearest(tables, mpi, place, caches)]


def test_the_most_alike_table_comes_first_and_the_default_one_last():
    tables = [table(ranks=2), table(ranks=4), table(ranks=4, mpi="Open MPI")]
    found = ranks_of(tables, "MPICH", Place(5, 5))
    assert found == [("MPICH", 1, 4), ("MPICH", 1, 2), ("", 1, 0)]


def test_a_cache_in_common_decides_between_the_same_numbers():
    tables = [table(caches="split", us=1), table(caches="one", us=2)]
    for caches, us in (("one", 2), ("split", 1)):
        first = nearest(tables, "MPICH", Place(4, 4), caches)[0]
        assert first.costs.curves["call"] == ((0.0, us),)


def test_a_table_of_few_hosts_says_nothing_about_many():
    tables = [table(hosts=2, ranks=4)]
    assert ranks_of(tables, "MPICH", Place(4, 2))[0] == ("MPICH", 2, 4)
    assert ranks_of(tables, "MPICH", Place(64, 2)) == [("", 2, 0)]
    assert ranks_of(tables, "MPICH", Place(4, 4)) == [("", 1, 0)]


def test_the_time_of_whole_calls_is_not_taken_from_other_numbers_of_ranks():
    def known(size):
        place = Topology(0, ("a",), (0,) * size, cores=size, mpi=MPICH)
        return Tuning([table(ranks=4, us=7.0)], place).costs.curves

    assert known(4)["all_reduce by native"][0] == (8.0, 7.0)
    assert "all_reduce by native" not in known(8)
    assert known(8)["call"] == ((0.0, 7.0),)


def test_ranks_of_hosts_that_differ_know_the_same():
    tables = [table(ranks=2, caches="split", us=1), table(ranks=2, caches="one", us=2)]
    parts = {0: ((0, 1),), 1: ((0,), (1,))}
    costs = [
        Tuning(tables, Topology(2 * h, ("a", "b"), (0, 0, 1, 1), 2, MPICH, (), (), its))
        for h, its in parts.items()
    ]
    assert costs[0].costs == costs[1].costs
    near = [
        Tuning(tables, Topology(0, ("a",), (0, 0), 2, MPICH, (), (), its)).costs
        for its in parts.values()
    ]
    assert [one.curves["call"] for one in near] == [((0.0, 2),), ((0.0, 1),)]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda p: p.name)
def test_what_is_shipped_is_in_order(path):
    tables = read(path.read_text())
    assert tables
    assert path == DEFAULT or path.stem in SHIPPED.values()
    for one in tables:
        assert one.made
        for collective, ranges in one.rules.items():
            for text in names(ranges):
                assert set(text.split("+")) <= set(TABLE[collective]), text
        for kind, curve in one.costs.curves.items():
            assert kind in KINDS or kind.partition(BY)[0] in TABLE, kind
            assert list(curve) == sorted(curve), kind


def test_there_are_tables_for_every_mpi_that_is_known():
    for mpi in SHIPPED:
        assert {one.mpi for one in read(shipped(mpi))} == {mpi}
    assert shipped("another") == ""


def test_the_default_prices_whatever_has_no_table():
    for hosts in ((0, 0, 0), (0, 1, 2)):
        place = Topology(0, ("a", "b", "c")[: max(hosts) + 1], hosts, cores=3)
        curves = Tuning((), place).costs.curves
        assert set(KINDS) <= set(curves) | {"far_copy", "far_combine"}
        assert ("far_copy" in curves) == (max(hosts) > 0)
    assert {one.hosts for one in default()} == {1, 2}
