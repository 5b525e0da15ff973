"""Proving, before the first call that needs it, what the MPI does with device memory.

One rank of each host asks (gpu/proving.py), while the others wait for its answer; all
take what holds everywhere.
"""

from __future__ import annotations

import json

from collectives.algorithms.small import all_gather_bytes
from collectives.gpu import proving
from collectives.gpu.probe import OPERATIONS
from collectives.gpu.proving import Proof
from collectives.group import Group


def open_cuda_aware(group: Group, timeout_s: float) -> None:
    """Fill in `group.gpus.proof`; once, by all members.

    Raises:
        TimedOut, PeerLost: as in `Group.wait`.
    """
    assert group.gpus is not None, "the ranks have told each other what they have"
    own = _own(group) if group.topology.local_rank == 0 else None
    told = all_gather_bytes(group, json.dumps(own).encode(), timeout_s)
    group.gpus.proof = proving.agreed([json.loads(bytes(one)) for one in told])


def _own(group: Group) -> Proof:
    mpi = group.topology.mpi
    assert mpi is not None, "an MPI has said that it can"
    try:
        return proving.prove(mpi.vendor, mpi.library)
    except Exception as error:  # whatever it is, the other ranks must hear of it
        text = f"the probe could not start: {type(error).__name__}: {error}"
        return dict.fromkeys(OPERATIONS, text)
