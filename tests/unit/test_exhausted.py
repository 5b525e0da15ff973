"""A rank gets no communicator for a new group: an error on all its members."""

import pytest
from harness.threads import outcome, run_ranks

from collectives import ExhaustedError
from collectives.transport.loopback import Loopback


class Limited(Loopback):
    """A loopback that on some ranks can be derived from only so often."""

    poor = (1,)
    most = 2

    def derive(self, ranks):
        if self.rank in self.poor and self.derived == self.most:
            raise ExhaustedError(f"rank {self.rank}: no more than {self.most}")
        self.derived += 1
        return super().derive(ranks)


def limited(messages):
    messages.__class__ = Limited
    messages.derived = 0
    return messages


MAKERS = {
    "group": lambda comm: comm.group([2, 1]),
    "members only": lambda comm: comm.group([2, 1], members_only=True),
    "split": lambda comm: comm.split(0 if comm.rank else None),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_all_members_raise_when_one_gets_none_and_the_parent_goes_on(maker):
    def body(comm):
        def make():
            called = comm.rank or maker != "members only"
            return MAKERS[maker](comm) if called else None

        made = [make() for _ in range(Limited.most)]
        failed = outcome(make)
        total = made[0].all_reduce(1).item() if comm.rank else 0
        families = len(comm._group.derived)
        return failed, total, families, comm.all_reduce(1).item()

    first, *members = run_ranks(3, body, transport=limited)
    assert not isinstance(first[0], Exception)
    texts = [str(failed) for failed, *_ in members]
    assert {type(failed) for failed, *_ in members} == {ExhaustedError}
    assert texts == [
        "rank 1: no more than 2",
        "rank 1 got no communicator for a new group; it must close() some",
    ]
    assert [total for _, total, _, _ in members] == [2, 2]
    assert [derived for *_, derived, _ in members] == [2, 2]
    assert [everybody for *_, everybody in (first, *members)] == [3] * 3
