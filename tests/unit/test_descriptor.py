"""Descriptors: equal calls have equal words, and differences are named in order."""

import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from collectives.descriptor import Descriptor, difference

ROOT = Path(__file__).parents[2]
CALL = Descriptor(
    "reduce", dtype="float32", op="sum", shape=(2, 3), root=1, algorithm="ring"
)
OTHERS = {
    "collective": "broadcast",
    "sequence": 4,
    "invalid": "x is no array",
    "dtype": "float64",
    "op": "max",
    "shape": (3, 2),
    "root": 0,
    "axis": 2,
    "splits": (0, 1, 2),
    "members": (1, 0),
    "packs": 1024,
    "result": "SHARED",
    "options": "check=off",
    "algorithm": "tree",
}


def test_every_field_is_tried_below():
    assert list(OTHERS) == [field.name for field in fields(Descriptor)]


@pytest.mark.parametrize("field", OTHERS)
def test_a_change_of_any_field_changes_the_digest(field):
    other = replace(CALL, **{field: OTHERS[field]})
    assert (other.digest == CALL.digest) == (field in ("sequence", "options"))


@pytest.mark.parametrize("field", OTHERS)
def test_a_difference_is_found_with_its_values_and_ranks(field):
    other = replace(CALL, **{field: OTHERS[field]})
    assert difference([CALL, other, CALL]) == (
        field,
        {getattr(CALL, field): [0, 2], OTHERS[field]: [1]},
    )


def test_the_first_field_that_differs_is_reported():
    names = list(OTHERS)
    for place, name in enumerate(names):
        changes = {late: OTHERS[late] for late in names[place:]}
        found = difference([CALL, replace(CALL, **changes)])
        assert found is not None
        assert found[0] == name


def test_equal_calls_have_no_difference_and_equal_words():
    again = replace(CALL)
    assert difference([CALL, again]) is None
    assert (again.digest, again.word(7)) == (CALL.digest, CALL.word(7))


def test_words_are_positive_63_bit_and_differ_by_sequence():
    words = [CALL.word(sequence) for sequence in range(1000)]
    assert len(set(words)) == 1000
    assert all(0 <= word < 1 << 63 for word in words)


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_the_digest_is_the_same_in_every_process(seed):
    script = (
        "from collectives.descriptor import Descriptor; print(Descriptor('reduce', "
        "dtype='float32', op='sum', shape=(2, 3), root=1, algorithm='ring').digest)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(ended.stdout) == CALL.digest


@pytest.mark.parametrize(
    ("descriptor", "text"),
    [
        (CALL, "reduce(float32, sum, shape (2, 3), root 1, ring)"),
        (Descriptor("barrier"), "barrier"),
        (
            Descriptor("all_gather", dtype="int8", shape=(-1,), axis=0),
            "all_gather(int8, shape (-1,), axis 0)",
        ),
        (
            Descriptor("reduce", invalid="root is 9"),
            "reduce with an invalid argument: root is 9",
        ),
    ],
)
def test_a_call_in_words(descriptor, text):
    assert str(descriptor) == text
