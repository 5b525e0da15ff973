"""Collectives on two levels: memory inside a host, messages between hosts.

What one rank of a host has, all others of it can have through memory; so nothing needs
to cross the network twice, and all ranks of a host share the work of sending it. The
source of the idea is Träff & Hunold, *Decomposing MPI collectives for exploiting
multi-lane communication*, CLUSTER 2020; how it is cut into rounds is ours.
"""

from collectives.algorithms.hierarchical.all_reduce import (
    all_reduce,
    copying_all_reduce,
    flowing_all_reduce,
)
from collectives.algorithms.hierarchical.all_to_all import all_to_all
from collectives.algorithms.hierarchical.blocks import (
    all_gather,
    gather,
    reduce_scatter,
    scatter,
)
from collectives.algorithms.hierarchical.ordered import (
    flowing_ordered_all_reduce,
    ordered_all_reduce,
)
from collectives.algorithms.hierarchical.rooted import broadcast, reduce

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "copying_all_reduce",
    "flowing_all_reduce",
    "flowing_ordered_all_reduce",
    "gather",
    "ordered_all_reduce",
    "reduce",
    "reduce_scatter",
    "scatter",
]
