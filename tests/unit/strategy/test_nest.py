from collections import OrderedDict, namedtuple

import pytest

from strategy import StructureError, nest

Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    "structure",
    [
        5,
        None,
        [],
        [1, (2, 3), []],
        {"a": [1], "b": Pair(2, None)},
        OrderedDict(b=1, a=2),
    ],
)
def test_unflatten_undoes_flatten(structure):
    again = nest.unflatten(structure, nest.flatten(structure))
    assert again == structure
    assert type(again) is type(structure)


def test_a_dict_is_flattened_by_its_keys_not_by_its_history():
    assert nest.flatten({"b": 2, "a": 1}) == nest.flatten({"a": 1, "b": 2}) == [1, 2]
    doubled = nest.map_structure(lambda x: 2 * x, {"b": 2, "a": 1})
    assert list(doubled.items()) == [("b", 4), ("a", 2)]


def test_a_named_tuple_keeps_its_type():
    assert nest.map_structure(lambda x: x + 1, Pair(1, [2])) == Pair(2, [3])


def test_map_walks_several_structures():
    assert nest.map_structure(lambda *xs: sum(xs), [1, {"a": 2}], [10, {"a": 20}]) == (
        [11, {"a": 22}]
    )


@pytest.mark.parametrize("other", [[1], (1, 2), {"a": 1}, [1, [2]], 7])
def test_structures_that_differ_are_refused(other):
    with pytest.raises(StructureError, match="structure 1 is"):
        nest.map_structure(lambda *xs: xs, [1, 2], other)
