"""Collective communication for Python over MPI.

    import collectives
    comm = collectives.world()
    y = comm.all_reduce(x, op="mean")

Start scripts with `mpirun -n 4 python script.py`; without a launcher everything works
with one rank. Importing this package loads no MPI; `world()` does.
"""

from collectives import exits, gpu
from collectives._version import __version__
from collectives.algorithms import ALGORITHMS
from collectives.communicator import Communicator
from collectives.errors import (
    BrokenCommunicatorError,
    CollectiveError,
    CollectiveTimeoutError,
    DeviceError,
    ExhaustedError,
    InvalidArgumentError,
    LaunchError,
    MismatchError,
    PeerFailedError,
    UnsupportedError,
)
from collectives.gradient_packs import GradientPacks
from collectives.handles import Handle
from collectives.kernels import OPS, ReduceOp
from collectives.options import Options
from collectives.registered import SHARED, SharedResult
from collectives.selection import Choice
from collectives.shortcuts import (
    all_gather,
    all_gather_object,
    all_reduce,
    all_reduce_many,
    all_to_all,
    barrier,
    broadcast,
    broadcast_many,
    broadcast_object,
    choose,
    exchange,
    gather,
    gather_object,
    recv,
    reduce,
    reduce_scatter,
    scan,
    scatter,
    send,
)
from collectives.startup import from_mpi, world
from collectives.topology import Topology

__all__ = [
    "ALGORITHMS",
    "OPS",
    "SHARED",
    "BrokenCommunicatorError",
    "Choice",
    "CollectiveError",
    "CollectiveTimeoutError",
    "Communicator",
    "DeviceError",
    "ExhaustedError",
    "GradientPacks",
    "Handle",
    "InvalidArgumentError",
    "LaunchError",
    "MismatchError",
    "Options",
    "PeerFailedError",
    "ReduceOp",
    "SharedResult",
    "Topology",
    "UnsupportedError",
    "__version__",
    "all_gather",
    "all_gather_object",
    "all_reduce",
    "all_reduce_many",
    "all_to_all",
    "barrier",
    "broadcast",
    "broadcast_many",
    "broadcast_object",
    "choose",
    "exchange",
    "exits",
    "from_mpi",
    "gather",
    "gather_object",
    "gpu",
    "recv",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
    "send",
    "world",
]
