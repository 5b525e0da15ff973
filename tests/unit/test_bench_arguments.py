import sys

import pytest

import collectives
from collectives.bench.arguments import parse, sizes_between
from collectives.bench.flags import parse_size
from collectives.bench.usage import Usage


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("512", 512),
        ("1K", 1024),
        ("1k", 1024),
        ("64M", 64 << 20),
        ("1G", 1 << 30),
    ],
)
def test_sizes_are_powers_of_1024(text, nbytes):
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "K", "-1", "1.5M", "1T", "1KK", "٣"])
def test_what_is_no_size_is_refused_with_examples(text):
    with pytest.raises(Usage, match=r"is not a size; wanted .* 64K"):
        parse(["all_reduce", f"-b={text}"])


def test_sizes_grow_by_a_factor_and_stop_at_the_maximum_as_in_nccl_tests():
    assert sizes_between(1024, 64 << 20, 8, None) == [1024 * 8**i for i in range(6)]
    assert sizes_between(1024, 8192, 8, None) == [1024, 8192]


def test_sizes_grow_by_a_step():
    assert sizes_between(0, 10, 4, 5) == [0, 5, 10]


def test_zero_bytes_alone():
    assert parse(["broadcast", "-b", "0", "-e", "0"]).sizes == (0,)


def test_the_defaults():
    request = parse(["all_reduce"])
    assert request.sizes == tuple(1024 * 4**i for i in range(9))
    assert (request.dtype, request.op, request.root) == ("float32", "sum", 0)
    assert (request.check, request.format, request.json) == (True, "nccl", None)
    assert (request.overlap, request.shapes.shapes) == (False, ())
    assert (request.registered, request.result, request.touch) == (False, "own", False)
    assert request.algorithms is request.iterations is request.repetitions is None


def test_every_flag():
    text = "reduce -b 8 -e 1K -i 8 -n 3 -w 0 -d half -o max -r 1 -c 0 --repetitions 2"
    request = parse([*text.split(), "--algorithm", "mpi,auto,mpi", "--format", "csv"])
    assert request.sizes == tuple(range(8, 1025, 8))
    assert request.step == "8(bytes)"
    assert (request.iterations, request.warmup, request.repetitions) == (3, 0, 2)
    assert (request.dtype, request.op, request.root) == ("float16", "max", 1)
    assert (request.check, request.format) == (False, "csv")
    assert request.algorithms == ("mpi", "auto")


EVERYTHING = (
    *("all_reduce_many", "broadcast_many", "barrier", "send", "exchange"),
    *collectives.ALGORITHMS,
)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("all_scatter", EVERYTHING),
        ("", EVERYTHING),
        ("all_reduce_many --shapes alexnet", ("'alexnet'", "resnet50", "bert_base")),
        (
            "all_reduce_many --algorithm rnig",
            ("mpi", "mpi_packed_25M", *collectives.ALGORITHMS["all_reduce"]),
        ),
        (
            "all_reduce --algorithm mpi,rnig",
            ("mpi", *collectives.ALGORITHMS["all_reduce"]),
        ),
        ("all_reduce -o median", ("sum", "mean", "min", "prod", "xor")),
        ("all_reduce -d float31", ("float16", "float32", "int64", "double")),
        ("all_reduce --format xml", ("nccl", "osu", "csv", "json")),
        ("all_reduce --regsitered", ("-b", "-e", "-f", "-i", "--algorithm", "--json")),
    ],
)
def test_an_unknown_name_is_one_line_that_lists_the_known(arguments, names):
    with pytest.raises(Usage) as caught:
        parse(arguments.split())
    assert caught.value.status == 2
    assert "\n" not in caught.value.text
    for name in names:
        assert name in caught.value.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("-n 0", "at least 1"),
        ("-n x", "at least 1"),
        ("-f 1", "at least 2"),
        ("-i 0", "at least 1"),
        ("-w -1", "at least 0"),
        ("-b 2K -e 1K", "-b 2048 is above -e 1024"),
        ("-b 0", "give a step"),
        ("-f 2 -i 8", "not allowed with"),
        ("-c 2", "invalid choice: 2"),
        ("--algo ring", "unknown argument '--algo'"),
        ("--shapes vit_base", "not for all_reduce; it is for: all_reduce_many"),
        ("--result shared", "--result shared needs --registered"),
        ("--result mine", "invalid choice: 'mine'"),
        ("--registered --touch", "--touch needs --registered --result shared"),
        ("--registered --overlap", "--registered is not for --overlap"),
        ("--overlap --format csv", "no format 'csv'; it has: osu json"),
    ],
)
def test_values_out_of_range_are_refused(arguments, message):
    with pytest.raises(Usage, match=message) as caught:
        parse(["all_reduce", *arguments.split()])
    assert caught.value.status == 2
    assert "\n" not in caught.value.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "reduce --registered",
            "--registered is not for reduce; it is for: all_reduce",
        ),
        (
            "all_reduce_many --registered --result shared",
            "shared is not for all_reduce_many; it is for: all_reduce'",
        ),
    ],
)
def test_collectives_without_that_form_are_refused(arguments, message):
    with pytest.raises(Usage, match=message):
        parse(arguments.split())


def test_a_shared_result_may_be_touched():
    request = parse(["all_reduce", "--registered", "--result", "shared", "--touch"])
    assert (request.registered, request.result, request.touch) == (True, "shared", True)


def test_help_is_no_error():
    with pytest.raises(Usage) as caught:
        parse(["--help"])
    assert caught.value.status == 0
    assert "--repetitions" in caught.value.text


def test_a_list_of_arrays_has_the_size_of_all_together():
    request = parse(["all_reduce_many", "-d", "half", "-b", "8"])
    assert request.shapes.name == "resnet50"
    assert request.sizes == (2 * request.shapes.elements,)
    assert request.step == "resnet50(shapes)"


def test_overlap_prints_osus_table_unless_json_is_wanted():
    assert parse(["reduce", "--overlap"]).format == "osu"
    assert parse(["reduce", "--overlap", "--format", "json"]).format == "json"


def test_bfloat16_needs_the_package_that_tells_numpy_of_it(monkeypatch):
    assert parse(["scan", "-d", "bfloat16"]).dtype == "bfloat16"
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(Usage, match="bfloat16 needs the package ml_dtypes"):
        parse(["scan", "-d", "bfloat16"])
