from collections import namedtuple

import numpy as np
import pytest

from strategy import Mirrored, PerReplica, StructureError
from strategy.values import regroup, select

Pair = namedtuple("Pair", "a b")


def test_equal_but_distinct_results_stay_per_replica():
    result = regroup([np.float32(1), np.float32(1)], PerReplica)
    assert isinstance(result, PerReplica)
    assert result.values == (1, 1)


def test_one_object_on_all_replicas_comes_back_bare():
    shared = object()
    assert regroup([shared, shared], PerReplica) is shared
    assert regroup([None, None], PerReplica) is None


def test_containers_are_walked():
    result = regroup([(Pair(1, "s"), [5]), (Pair(2000, "s"), [5])], PerReplica)
    assert isinstance(result, tuple)
    assert result[0].a.values == (1, 2000)
    assert (result[0].b, result[1]) == ("s", [5])


def test_one_replica_gets_everything_bare():
    result = [1, 2]
    assert regroup([result], PerReplica) is result


def test_lists_of_different_lengths_are_refused_as_tensorflow_does():
    for kind in (StructureError, AssertionError, ValueError):
        with pytest.raises(kind, match="list of 2"):
            regroup([[1], [1, 1]], PerReplica)


def test_select_takes_components_at_any_depth():
    nest = {"x": [PerReplica([1, 2]), Mirrored([3, 3])], "y": 9}
    assert select(1, nest) == {"x": [2, 3], "y": 9}


def test_per_replica_is_no_array_outside_replicas():
    with pytest.raises(ValueError, match="only inside run"):
        np.asarray(PerReplica([np.ones(2)]))
    with pytest.raises(TypeError):
        PerReplica([1.0]) + 1


def test_mirrored_calculates():
    assert Mirrored([np.float32(3), np.float32(3)]) + 1 == 4
    total = np.ones(2, np.float32) + Mirrored([np.ones(2, np.float32)] * 2)
    assert total.tolist() == [2, 2]
    assert total.dtype == np.float32


def test_repr_lists_the_components():
    assert repr(PerReplica([1, 2])) == "PerReplica:{\n  0: 1,\n  1: 2\n}"
