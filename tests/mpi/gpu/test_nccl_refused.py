"""Ranks that share a GPU: NCCL is refused before it is opened, and says who shares."""

import pytest

from collectives import UnsupportedError

pytestmark = [pytest.mark.gpus, pytest.mark.ranks(2, 3, 4)]


@pytest.fixture
def cp():
    return pytest.importorskip("cupy")


def test_ranks_on_one_gpu_are_named(cp, comm):
    if not all(comm.topology.with_gpu):
        return
    assert (comm.all_reduce(cp.ones(3)).get() == comm.size).all()
    uuids = comm._group.gpus.uuids
    shared = [rank for rank, uuid in enumerate(uuids) if uuids.count(uuid) > 1]
    opened = comm.warm_up("cuda")
    if not shared:
        assert opened.no_nccl == "" and comm._group.nccl is not None
        return
    for way in ("nccl", "nccl_exchange"):
        with pytest.raises(UnsupportedError, match="share one GPU, GPU-") as caught:
            comm.all_reduce(cp.ones(3), algorithm=way)
        named = {rank for rank in shared if uuids[rank] == uuids[shared[0]]}
        assert f"all_reduce by {way}: ranks {sorted(named)}" in str(caught.value)
    assert "share one GPU" in opened.no_nccl and comm._group.nccl is None
