import pytest

from strategy import CommunicationImplementation, CommunicationOptions, ReduceOp

AUTO, RING, NCCL = CommunicationImplementation


def test_defaults():
    options = CommunicationOptions()
    assert (options.bytes_per_pack, options.timeout_seconds) == (0, None)
    assert options.implementation is AUTO


@pytest.mark.parametrize(
    "wrong",
    [
        {"bytes_per_pack": -1},
        {"timeout_seconds": -0.5},
        {"implementation": "GLOO"},
        {"implementation": 1},
    ],
)
def test_wrong_values_are_refused(wrong):
    (field,) = wrong
    with pytest.raises(ValueError, match=field):
        CommunicationOptions(**wrong)


def test_an_implementation_is_named_in_any_case():
    assert CommunicationOptions(implementation="ring").implementation is RING


def test_merge_takes_what_the_other_sets():
    ours = CommunicationOptions(50, 3.0, "RING")
    assert ours.merge(None) == ours
    assert ours.merge(CommunicationOptions()) == ours
    assert ours.merge(CommunicationOptions(implementation="NCCL")) == (
        CommunicationOptions(50, 3.0, NCCL)
    )
    assert CommunicationOptions().merge(ours) == ours


def test_reduce_op_is_named_in_any_case():
    assert ReduceOp.parse("mean") is ReduceOp.MEAN
    with pytest.raises(ValueError, match=r"'MAX'.*SUM MEAN"):
        ReduceOp.parse("MAX")
    with pytest.raises(TypeError, match="wanted a ReduceOp"):
        ReduceOp.parse(1)
