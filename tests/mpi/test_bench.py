import json
import tempfile
import tracemalloc
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from collectives.bench import cases, driver
from collectives.bench.arguments import parse
from collectives.bench.case import IN_PLACE, OUT_OF_PLACE
from collectives.bench.cases import CASES
from collectives.bench.flags import algorithms_of
from collectives.bench.usage import Usage, agree

QUICK = ["-n", "2", "-w", "1", "--repetitions", "2"]

# 1024 elements: arrays of several lengths, an empty one and 0-d ones.
SHAPES = [[3, 21], [], [0, 5], {"repeat": 3, "shapes": [[60, 4], [64]]}, [], [47]]


@pytest.fixture(scope="module")
def few(comm):
    """Return the path of a list of a few shapes."""
    # One file, made by one rank, as all ranks must read the same.
    with tempfile.TemporaryDirectory() if comm.rank == 0 else nullcontext() as folder:
        path = Path(comm.broadcast_object(folder)) / "few.json"
        if comm.rank == 0:
            path.write_text(json.dumps(SHAPES))
        comm.barrier()
        yield path
        comm.barrier()


def everywhere(names):
    """Return these collectives, each for the numbers of ranks that it can have."""
    return [
        pytest.param(name, marks=pytest.mark.ranks(2, 3, 4, 5))
        if CASES[name].fewest_ranks > 1
        else name
        for name in names
    ]


def sized(collective, low, high, few):
    """Return the flags that give a collective its sizes."""
    if CASES[collective].listed:
        return f"--shapes {few}"
    return f"-b {low} -e {high} -f 70"


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


@pytest.mark.one_host
@pytest.mark.parametrize("collective", everywhere(CASES))
def test_every_algorithm_of_every_collective_is_right(comm, capsys, collective, few):
    names = algorithms_of(collective)
    sizes = sized(collective, "1", "300K", few)
    root = comm.size - 1
    text = f"{collective} {sizes} -r {root} --algorithm {','.join(names)}"
    found = document(capsys, comm, text)
    if found is None:
        return
    case = CASES[collective]
    assert [row["algorithm"] for row in found["rows"][: len(names)]] == list(names)
    for row in found["rows"]:
        table = case.runners(row["algorithm"])
        assert row["wrong"] == 0
        assert row["place"] == (IN_PLACE if IN_PLACE in table else OUT_OF_PLACE)
        if row["place"] == IN_PLACE:
            assert (row["out_of_place"] is None) == (OUT_OF_PLACE not in table)
        times = row["time_us"]
        assert 0 < times["min"] <= times["median"] <= times["max"]
        rate = row["bytes"] / times["median"] / 1e3
        assert row["algbw_gbps"] == pytest.approx(rate)
        assert row["busbw_gbps"] == pytest.approx(rate * case.factor(comm.size))
    assert found["out_of_bounds"] == {"count": 0, "okay": True}
    assert sum(map(len, found["host_map"].values())) == comm.size


@pytest.mark.ranks(2, 3, 4, 5)  # alone, in place, nothing must move
def test_what_must_move_at_least_is_printed_beside_every_time(comm, capsys):
    found = document(capsys, comm, "all_reduce -b 64K -e 64K")
    for row in found["rows"] if found else []:
        for figures in (row, row["out_of_place"]):
            for key in ("min", "median"):
                floor_us, over = figures["floor_us"][key], figures["over_floor"][key]
                assert floor_us > 0
                assert over == pytest.approx(figures["time_us"][key] / floor_us)


def test_a_shared_result_is_right_untouched_and_touched(comm, capsys):
    flags = "--registered --result shared --touch"
    found = document(capsys, comm, f"all_reduce -b 1K -e 70K -f 70 {flags}")
    if found is None:
        return
    forms = [(x["registered"], x["shared"], x["touched"]) for x in found["rows"]]
    each = [(False, False, False), (True, True, False), (True, True, True)]
    assert forms == each * 2
    assert [row["place"] for row in found["rows"]] == [
        *(IN_PLACE, OUT_OF_PLACE, OUT_OF_PLACE)
    ] * 2
    assert found["out_of_bounds"] == {"count": 0, "okay": True}


@pytest.mark.parametrize("collective", ["all_reduce", "all_reduce_many"])
def test_registered_arrays_of_each_rank(comm, capsys, collective, few):
    text = f"{collective} --registered {sized(collective, '1K', '70K', few)}"
    found = document(capsys, comm, text)
    for row in found["rows"] if found else []:
        assert row["registered"] == (row["algorithm"] == "auto")
        assert (row["place"], row["wrong"]) == (IN_PLACE, 0)


@pytest.mark.parametrize("op", ["mean", "min", "max", "prod"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_ops_of_floats(comm, op, dtype):
    assert (
        bench(comm, f"all_reduce -b 1K -e 1K -o {op} -d {dtype} --algorithm auto") == 0
    )


@pytest.mark.parametrize("op", ["sum", "prod", "and", "or", "xor"])
@pytest.mark.parametrize("dtype", ["int8", "uint64"])
def test_ops_of_integers(comm, op, dtype):
    assert bench(comm, f"all_reduce -b 1K -e 1K -o {op} -d {dtype}") == 0


@pytest.mark.parametrize("op", ["min", "max", "prod", "and", "or", "xor"])
@pytest.mark.parametrize("dtype", ["int8", "uint64"])
def test_before_the_first_rank_there_is_the_identity(comm, op, dtype):
    assert bench(comm, f"exclusive_scan -b 1K -e 1K -o {op} -d {dtype}") == 0


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
@pytest.mark.parametrize("collective", [name for name in CASES if name != "barrier"])
def test_a_call_that_does_nothing_is_wrong(comm, capsys, monkeypatch, collective, few):
    right = CASES[collective]
    places = {OUT_OF_PLACE: lazy, IN_PLACE: lazy}
    monkeypatch.setitem(cases.CASES, collective, replace(right, ours=places))
    assert bench(comm, f"{collective} {sized(collective, '4K', '4K', few)}") == 1
    if comm.rank == 0:
        (cells,) = [x.split() for x in table(capsys.readouterr().out) if " auto" in x]
        assert int(cells[8]) > 500
        assert int(cells[12]) > 500


def all_gather_first(setup, send, receive):
    """Give every rank the first part of each, where it wants its own part of each."""
    return lambda: setup.comm.all_gather(
        send[: send.size // setup.comm.size].copy(), out=receive
    )


@pytest.mark.ranks(2, 3, 4, 5)
def test_the_part_of_another_rank_is_wrong(comm, capsys, monkeypatch):
    right = CASES["all_to_all"]
    places = {OUT_OF_PLACE: all_gather_first}
    monkeypatch.setitem(cases.CASES, "all_to_all", replace(right, ours=places))
    assert bench(comm, "all_to_all -b 64K -e 64K") == 1
    if comm.rank == 0:
        (cells,) = [x.split() for x in table(capsys.readouterr().out) if " auto" in x]
        elements = int(cells[1]) * comm.size  # of one rank's result
        right_elements = elements * comm.size - int(cells[8])
        assert elements <= right_elements < 1.1 * elements


@pytest.mark.parametrize(
    "collective",
    everywhere(name for name in CASES if name != "send" and not CASES[name].listed),
)
def test_overlap_of_everything_that_can_be_started(comm, capsys, collective):
    text = f"{collective} --overlap -b 4K -e 4K -r {comm.size - 1}"
    found = document(capsys, comm, text)
    if found is None:
        return
    assert [row["algorithm"] for row in found["rows"]] == ["mpi", "auto"]
    for row in found["rows"]:
        us = {
            thing: row[f"{thing}_us"]["median"]
            for thing in ("overall", "computation", "blocking", "started")
        }
        assert min(us.values()) > 0
        saved = us["blocking"] + us["computation"] - us["overall"]
        assert row["overlap_percent"] == pytest.approx(100 * saved / us["blocking"])
        assert row["wrong"] == 0


def test_overlap_of_a_list_of_arrays_has_no_baseline(comm, capsys, few):
    assert bench(comm, f"all_reduce_many --overlap --shapes {few}") == 0
    if comm.rank == 0:
        (cells,) = [line.split() for line in table(capsys.readouterr().out)]
        assert cells[0] == "4096"
        assert cells[-2:] == ["0", "auto"]


@pytest.mark.ranks(2, 3, 4, 5)
def test_a_message_to_one_rank_cannot_be_started(comm):
    with pytest.raises(Usage, match="send by 'mpi' cannot be started"):
        bench(comm, "send --overlap")


@pytest.mark.ranks(2, 3, 4, 5)
def test_a_started_call_that_does_nothing_is_wrong(comm, capsys, monkeypatch):
    class Nothing:
        def wait(self):
            pass

    monkeypatch.setattr(
        type(comm), "start_all_reduce", lambda *_, **__: Nothing(), raising=True
    )
    assert bench(comm, "all_reduce --overlap -b 4K -e 4K") == 1
    if comm.rank == 0:
        by_mpi, ours = (line.split() for line in table(capsys.readouterr().out))
        assert by_mpi[6] == "0"
        assert int(ours[6]) > 500


def test_all_gather_in_place_copies_nothing(comm):
    count = 1 << 16
    whole = np.empty(count * comm.size)
    mine = whole[count * comm.rank : count * (comm.rank + 1)]
    mine[:] = comm.rank
    comm.all_gather(mine, out=whole)
    tracemalloc.start()
    comm.all_gather(mine, out=whole)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    parts = whole.reshape(comm.size, count)
    assert [np.unique(part).tolist() for part in parts] == [
        [r] for r in range(comm.size)
    ]
    assert peak < mine.nbytes


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
        ("all_reduce -e 1000000G -f 1000", "-e .* needs .* give something smaller"),
        ("reduce -d bfloat16 --algorithm mpi", "algorithm 'mpi' has no bfloat16"),
        ("all_reduce_many --overlap --algorithm mpi", "--overlap of all_reduce_many"),
        ("scan -o mean --algorithm auto", "scan by mean"),
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


@pytest.mark.ranks(1)
@pytest.mark.parametrize("collective", ["send", "exchange"])
def test_one_rank_alone_has_nobody_to_talk_to(comm, collective):
    with pytest.raises(Usage, match=f"{collective} needs 2 ranks or more; there is 1"):
        bench(comm, collective)


@pytest.mark.ranks(2, 3, 4, 5)
def test_other_arguments_on_one_rank_are_an_error_on_all(comm):
    with pytest.raises(Usage, match="rank 1 was started with other arguments"):
        agree(comm, f"text {comm.rank == 1}")
    with pytest.raises(Usage, match="rank 1: unknown"):
        agree(comm, Usage("unknown") if comm.rank == 1 else "right")
