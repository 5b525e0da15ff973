"""`ringfold tune` on several ranks, and tables that all ranks have in common."""

import json

import numpy as np
import pytest

import collectives
from collectives import InvalidArgumentError, MismatchError, Options
from collectives.cli import main
from collectives.tables import read
from collectives.tune import fitting, measuring, regret, ruling


@pytest.fixture
def quick(monkeypatch):
    """Measure next to nothing: what is tested is not the figures."""
    for module in (fitting, ruling, regret):
        monkeypatch.setattr(module, "BUDGET_S", 1e-4)
    monkeypatch.setattr(measuring, "BATCHES", 1)
    monkeypatch.setattr(measuring, "FEWEST", 1)
    monkeypatch.setattr(fitting, "SIZES", (8, 4096))
    monkeypatch.setattr(fitting, "WHOLE_SIZES", (8, 4096))
    monkeypatch.setattr(ruling, "SIZES", (8, 512, 1 << 19))


@pytest.fixture
def path(comm, tmp_path):
    """Return one file name for all ranks."""
    return comm.broadcast_object(str(tmp_path / "table.json"))


def of_all(comm, text, path):
    """Write a file on rank 0; then it is there."""
    if comm.rank == 0:
        with open(path, "w") as file:
            file.write(text)
    comm.barrier()
    return path


@pytest.mark.ranks(2, 3)
def test_a_table_is_written_and_then_decides(comm, quick, path, capsys):
    assert main(["tune", "--output", path]) == 0
    assert ("written to" in capsys.readouterr().out) == (comm.rank == 0)
    comm.barrier()
    with open(path) as file:
        (table,) = read(file.read())
    hosts = len(comm.topology.hosts)
    assert (table.ranks, table.hosts) == (comm.size, hosts)
    assert set(table.rules) == set(collectives.ALGORITHMS) - {"auto"}
    with collectives.from_mpi(comm.mpi, Options(timeout_s=30, table=path)) as tuned:
        choice = tuned.choose("all_reduce", 8)
        assert table.name in choice.reason
        assert choice.predicted_us > 0
        assert tuned.all_reduce(np.ones(2)).tolist() == [comm.size] * 2
        if comm.size > 2:
            pair = tuned.group([0, 1])
            if comm.rank < 2:
                assert "table" in pair.choose("all_reduce", 8).reason
                pair.close()


@pytest.mark.ranks(2, 3)
def test_auto_is_compared_with_what_it_may_take(comm, quick, capsys):
    assert main(["tune", "--check", "-e", "2K"]) == 0
    printed = capsys.readouterr().out
    assert ("regret: mean" in printed) == (comm.rank == 0)


def test_rank_0_reads_the_table_and_all_have_it(comm, path):
    rules = {"all_reduce": "ring:0-4K;recursive_doubling:4K-max"}
    mpi = comm.topology.mpi.vendor
    place = {"mpi": mpi, "hosts": len(comm.topology.hosts), "ranks": comm.size}
    entry = {**place, "caches": "", "made": {}, "rules": rules, "curves_us": {}}
    text = {"format": 1, "tables": [entry]}
    of_all(comm, json.dumps(text), path)
    with collectives.from_mpi(comm.mpi, Options(timeout_s=30, table=path)) as tuned:
        names = [tuned.choose("all_reduce", n).algorithm for n in (8, 4096, 4100)]
        if comm.size > 1:
            assert names == ["ring", "ring", "recursive_doubling"]
        assert tuned.all_reduce(1.0).item() == comm.size


@pytest.mark.parametrize("text", [None, "no table"])
def test_a_file_that_will_not_do_is_the_same_error_on_all_ranks(comm, path, text):
    if text is not None:
        of_all(comm, text, path)
    with pytest.raises(InvalidArgumentError, match="table"):
        collectives.from_mpi(comm.mpi, Options(timeout_s=30, table=path))
    errors = comm.all_gather_object(1)
    assert len(errors) == comm.size


@pytest.mark.ranks(2)
def test_different_tables_are_an_error(comm, path):
    own = path if comm.rank == 0 else ""
    of_all(comm, json.dumps({"format": 1, "tables": []}), path)
    with pytest.raises(MismatchError, match="different table"):
        collectives.from_mpi(comm.mpi, Options(timeout_s=30, table=own))


def test_ranges_decide_by_size(comm):
    by_size = "recursive_doubling:0-8K;ring:8K-64K"
    ranged = comm.with_options(algorithm=by_size)
    names = [ranged.choose("all_reduce", n).algorithm for n in (8, 8192, 8196)]
    assert names == ["recursive_doubling", "recursive_doubling", "ring"]
    assert "table" in ranged.choose("all_reduce", 1 << 20).reason or comm.size == 1
    for count in (1, 2048, 2049, 1 << 15):
        total = ranged.all_reduce(np.ones(count, np.float32))
        assert (total == comm.size).all()
    # Of another collective the one name counts that it has, at its sizes.
    rows = ranged.all_gather(np.full((comm.rank + 1, 4), comm.rank))
    assert rows.shape == (comm.size * (comm.size + 1) // 2, 4)
