"""Backward passes against differences, which are exact: collectives are linear."""

import numpy as np
import pytest

import strategy as distribute
from strategy import gradients


def number():
    return int(distribute.get_replica_context().replica_id_in_sync_group)


def gradient_of(strategy, forward, xs):
    """Return dz/dx by differences, z being the sum of what all replicas return."""

    def z(inputs):
        result = strategy.run(lambda: forward(inputs[number()])[0])
        return sum(strategy.experimental_local_results(result))

    slopes = []
    for r, x in enumerate(xs):
        slope = np.zeros_like(x)
        for at in np.ndindex(x.shape):
            step = [other.copy() for other in xs]
            step[r][at] += 1
            slope[at] = z(step) - z(xs)
        slopes.append(slope)
    return slopes


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("op", ["SUM", "MEAN"])
def test_all_reduce(count, op):
    strategy = distribute.MirroredStrategy([f"CPU:{i}" for i in range(count)])
    weights = [np.arange(1.0, 4) * (r + 1) for r in range(count)]

    def forward(x):
        y, backward = gradients.all_reduce(op, x)
        return (weights[number()] * y).sum(), backward(weights[number()])

    xs = [np.arange(3.0) + r for r in range(count)]
    found = strategy.run(lambda: forward(xs[number()])[1])
    found = strategy.experimental_local_results(found)
    for ours, wanted in zip(found, gradient_of(strategy, forward, xs), strict=True):
        np.testing.assert_allclose(ours, wanted)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("axis", [0, 1])
def test_all_gather_of_uneven_parts(count, axis):
    strategy = distribute.MirroredStrategy([f"CPU:{i}" for i in range(count)])
    shapes = [(r + 1, 2) if axis == 0 else (2, r + 1) for r in range(count)]
    whole = sum(shape[axis] for shape in shapes)
    shape = (whole, 2) if axis == 0 else (2, whole)
    weights = np.arange(1.0, 2 * whole + 1).reshape(shape)

    def forward(x):
        y, backward = gradients.all_gather(x, axis)
        mine = weights * (number() + 1)
        return (mine * y).sum(), backward(mine)

    xs = [np.ones(shape) for shape in shapes]
    found = strategy.run(lambda: forward(xs[number()])[1])
    found = strategy.experimental_local_results(found)
    for ours, wanted in zip(found, gradient_of(strategy, forward, xs), strict=True):
        np.testing.assert_allclose(ours, wanted)


def test_nests_go_back_as_nests():
    strategy = distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def replica():
        _, backward = gradients.all_gather({"a": np.ones(2), "b": [np.ones(1)]}, 0)
        return backward({"a": np.arange(4.0), "b": [np.arange(2.0)]})

    result = strategy.run(replica)
    assert [part.tolist() for part in result["a"].values] == [[0, 2], [4, 6]]
    assert [part.tolist() for part in result["b"][0].values] == [[0], [2]]


def test_outside_of_replicas_there_is_nothing_to_differentiate():
    with (
        distribute.MirroredStrategy().scope(),
        pytest.raises(RuntimeError, match=r"inside run\(\)"),
    ):
        gradients.all_reduce("SUM", np.ones(1))
