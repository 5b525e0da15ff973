"""What one rank does wrong is an error on every rank, and the next call works."""

import numpy as np
import pytest

import collectives
import strategy as distribute
from strategy import IndexedSlices, Mirrored, Variable
from strategy import VariableAggregation as Aggregation

pytestmark = pytest.mark.ranks(2, 3)


@pytest.fixture(scope="module", params=[1, 2])
def several(request):
    names = [f"CPU:{index}" for index in range(request.param)]
    return distribute.MultiWorkerMirroredStrategy(devices=names)


@pytest.fixture
def wrong(comm):
    """Return whether this is the rank that makes the mistake."""
    return comm.rank == comm.size - 1


def refused_everywhere(strategy, comm, call):
    with pytest.raises(collectives.MismatchError) as caught, strategy.scope():
        call()
    assert len(set(comm.all_gather_object(str(caught.value)))) == 1
    assert strategy.reduce("SUM", 1.0, axis=None) == strategy.num_replicas_in_sync


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
def test_an_axis_that_one_value_does_not_have(several, comm, wrong, op):
    value = several.experimental_distribute_values_from_function(
        lambda context: np.ones(2) if wrong else np.ones((2, 2))
    )
    refused_everywhere(several, comm, lambda: several.reduce(op, value, axis=1))


def test_a_mirrored_value_on_one_rank(several, comm, wrong):
    count = len(several.extended.replica_ids)
    value = Mirrored([1.0] * count) if wrong else 1.0
    refused_everywhere(several, comm, lambda: several.reduce("SUM", value, None))


@pytest.mark.parametrize("name", ["SUM", "MEAN", "ONLY_FIRST_REPLICA"])
@pytest.mark.parametrize("bad", [np.ones(3), np.ones(2, complex)])
def test_an_assigned_value_that_does_not_fit(several, comm, wrong, name, bad):
    with several.scope():
        v = Variable(np.zeros(2), aggregation=Aggregation[name])
    refused_everywhere(
        several,
        comm,
        lambda: several.run(lambda: v.assign(bad if wrong else np.ones(2))),
    )
    assert v.numpy().tolist() == [0, 0]


def test_rows_that_do_not_exist(several, comm, wrong):
    with several.scope():
        v = Variable(np.zeros(2), aggregation=Aggregation.SUM)
    rows = IndexedSlices(np.ones(1), [5 if wrong else 0])
    refused_everywhere(several, comm, lambda: several.run(v.scatter_add, args=(rows,)))


def test_an_initial_value_that_cannot_be_made(several, comm, wrong):
    def initial():
        if wrong:
            raise FileNotFoundError("weights.npy")
        return np.zeros(2)

    refused_everywhere(several, comm, lambda: Variable(initial))


@pytest.mark.parametrize("several", [2], indirect=True)
def test_slices_that_the_replicas_of_one_rank_cannot_join(several, comm, wrong):
    def replica():
        context = distribute.get_replica_context()
        odd = wrong and context.replica_id_in_sync_group == count - 1
        rows = np.ones((1, 3 if odd else 2))
        return context.all_reduce("SUM", IndexedSlices(rows, [0]))

    count = several.num_replicas_in_sync
    refused_everywhere(several, comm, lambda: several.run(replica))


@pytest.mark.parametrize("bad", [{"reduce_op": "AVG"}, {"options": "fast"}])
def test_an_op_or_hints_that_do_not_exist(several, comm, wrong, bad):
    def replica():
        context = distribute.get_replica_context()
        given = {"reduce_op": "SUM", **(bad if wrong else {})}
        return context.all_reduce(value=np.ones(2), **given)

    refused_everywhere(several, comm, lambda: several.run(replica))


def test_arguments_of_reduce(several, comm, wrong):
    for op, axis in (("AVG", None), ("SUM", 0.5), (3, None)):
        given = (op, np.ones(2), axis) if wrong else ("SUM", np.ones(2), None)
        refused_everywhere(several, comm, lambda given=given: several.reduce(*given))


def test_arguments_of_reduce_to(several, comm, wrong):
    for op, to in (("AVG", "CPU:0"), ("SUM", "")):
        given = (op, np.ones(2), to) if wrong else ("SUM", np.ones(2), "CPU:0")
        refused_everywhere(
            several, comm, lambda given=given: several.extended.reduce_to(*given)
        )


def test_an_op_that_exists_on_no_rank(several):
    with pytest.raises(ValueError, match="reduce_op is 'AVG'"):
        several.reduce("AVG", np.ones(2), None)
