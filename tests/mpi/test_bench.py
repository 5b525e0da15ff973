import json
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from collectives.bench import cases, driver
from collectives.bench.arguments import parse
from collectives.bench.cases import BASELINE, CASES, IN_PLACE, OUT_OF_PLACE
from collectives.bench.flags import algorithms_of
from collectives.bench.usage import Usage, agree

QUICK = ["-n", "2", "-w", "1", "--repetitions", "2"]


def bench(comm, text):
    """Run on this test's ranks; return the exit status."""
    request = parse([*text.split(), *QUICK])
    return driver.run(comm, request, "ringfold bench " + text)


def document(capsys, comm, text):
    """Run and return what rank 0 printed as JSON; None elsewhere."""
    assert bench(comm, text + " --format json") == 0
    out = capsys.readouterr().out
    assert bool(out) == (comm.rank == 0)
    return json.loads(out) if out else None


@pytest.mark.parametrize("collective", CASES)
def test_every_algorithm_of_every_collective_is_right(comm, capsys, collective):
    names = algorithms_of(collective)
    root = comm.size - 1
    text = f"{collective} -b 1 -e 300K -f 70 -r {root} --algorithm {','.join(names)}"
    found = document(capsys, comm, text)
    if found is None:
        return
    case = CASES[collective]
    assert [row["algorithm"] for row in found["rows"][: len(names)]] == list(names)
    for row in found["rows"]:
        table = case.raw if row["algorithm"] == BASELINE else case.ours
        assert row["wrong"] == 0
        assert (row["out_of_place"] is None) == (OUT_OF_PLACE not in table)
        times = row["time_us"]
        assert 0 < times["min"] <= times["median"] <= times["max"]
        rate = row["bytes"] / times["median"] / 1e3
        assert row["algbw_gbps"] == pytest.approx(rate)
        assert row["busbw_gbps"] == pytest.approx(rate * case.factor(comm.size))
    assert found["out_of_bounds"] == {"count": 0, "okay": True}
    assert sum(map(len, found["host_map"].values())) == comm.size


@pytest.mark.parametrize("op", ["mean", "min", "max", "prod"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_ops_of_floats(comm, op, dtype):
    assert (
        bench(comm, f"all_reduce -b 1K -e 1K -o {op} -d {dtype} --algorithm auto") == 0
    )


@pytest.mark.parametrize("op", ["sum", "prod", "and", "or", "xor"])
@pytest.mark.parametrize("dtype", ["int8", "uint64"])
def test_ops_of_integers(comm, op, dtype):
    assert bench(comm, f"all_reduce -b 1K -e 1K -o {op} -d {dtype}") == 0


def table(text):
    """Keep the rows."""
    return [line for line in text.splitlines() if not line.startswith("#")]


def doubled(setup, send, receive):
    """Call the right thing and spoil one element on the last rank."""
    call = partial(setup.comm.all_reduce, send, setup.op, out=receive)

    def wrong():
        call()
        if setup.comm.rank == setup.comm.size - 1:
            receive[7] += 1

    return wrong


@pytest.mark.parametrize("place", [OUT_OF_PLACE, IN_PLACE])
def test_a_wrong_element_on_one_rank_fails_the_run_on_all(
    comm, capsys, monkeypatch, place
):
    right = CASES["all_reduce"]
    monkeypatch.setitem(
        cases.CASES, "all_reduce", replace(right, ours={**right.ours, place: doubled})
    )
    assert bench(comm, "all_reduce -b 1K -e 4K -f 4") == 1
    if comm.rank == 0:
        out = capsys.readouterr().out
        assert "# Out of bounds values : 2 FAILED" in out
        cells = [line.split() for line in table(out) if " auto" in line]
        column = {OUT_OF_PLACE: 8, IN_PLACE: 12}[place]
        assert [line[column] for line in cells] == ["1", "1"]


def lazy(setup, send, receive):
    """Move nothing at all."""
    return lambda: None


@pytest.mark.ranks(2, 3, 4, 5)
@pytest.mark.parametrize(
    "collective", ["all_reduce", "reduce", "broadcast", "all_gather"]
)
def test_a_call_that_does_nothing_is_wrong(comm, capsys, monkeypatch, collective):
    right = CASES[collective]
    places = {OUT_OF_PLACE: lazy, IN_PLACE: lazy}
    monkeypatch.setitem(cases.CASES, collective, replace(right, ours=places))
    assert bench(comm, f"{collective} -b 4K -e 4K") == 1
    if comm.rank == 0:
        (cells,) = [x.split() for x in table(capsys.readouterr().out) if " auto" in x]
        assert int(cells[8]) > 500
        assert int(cells[12]) > 500


def test_without_a_check_wrong_is_unknown(comm, capsys):
    found = document(capsys, comm, "all_reduce -b 1K -e 1K -c 0")
    if found is not None:
        assert found["rows"][0]["wrong"] is None
        assert found["out_of_bounds"] == {"count": None, "okay": None}


def test_rounding_is_said_in_the_header(comm, capsys):
    assert bench(comm, "all_gather -b 8 -e 8") == 0
    if comm.rank == 0:
        rounded = 8 // comm.size // 16 * 16
        assert f"16 bytes a rank: 8 -> {rounded}" in capsys.readouterr().out


def test_json_file_is_whole_and_alone(comm, capsys):
    # One folder, made by one rank: all ranks would clean up pytest's tmp_path.
    with tempfile.TemporaryDirectory() if comm.rank == 0 else nullcontext() as folder:
        path = Path(comm.broadcast_object(folder)) / "a.json"
        assert bench(comm, f"reduce -b 64 -e 64 --json {path} --format csv") == 0
        if comm.rank == 0:
            assert capsys.readouterr().out.startswith("collective,bytes,count,")
            assert [*path.parent.iterdir()] == [path]
            assert json.loads(path.read_text())["rows"][0]["bytes"] == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("broadcast -r 99", "-r 99 is not a rank; there are"),
        ("all_reduce -o mean --algorithm mpi,ring", "algorithm 'mpi' has no op 'mean'"),
        ("all_reduce -e 1000000G -f 1000", "give a smaller -e"),
        ("barrier --json /no/such/folder/a.json", "cannot write --json"),
        ("barrier --json /", "it is a directory"),
        ("all_reduce -d float32 -o and", "that dtype has: sum"),
        ("reduce -d int32 -o mean", "op mean of int32 gives float64"),
        (
            "reduce -e 1K -o max --algorithm native",
            "'native' cannot reduce float32 with op",
        ),
    ],
)
def test_what_cannot_be_done_here_is_said_on_every_rank(comm, text, message):
    with pytest.raises(Usage, match=message) as caught:
        bench(comm, text)
    assert "\n" not in caught.value.text
    assert len(set(comm.all_gather_object(caught.value.text))) == 1


@pytest.mark.ranks(2, 3, 4, 5)
def test_other_arguments_on_one_rank_are_an_error_on_all(comm):
    with pytest.raises(Usage, match="rank 1 was started with other arguments"):
        agree(comm, f"text {comm.rank == 1}")
    with pytest.raises(Usage, match="rank 1: unknown"):
        agree(comm, Usage("unknown") if comm.rank == 1 else "right")
