"""Who sends which blocks to whom, step by step, as plain integers.

Nothing here knows arrays, MPI or bytes, so that a schedule can be proved by a lockstep
simulation for any size, and the executor (algorithms/stepwise.py) writes segmentation,
tags, deadlines and reduction once for all of them.
"""

from collectives.schedules.chain import (
    chain_all_reduce,
    chain_broadcast,
    chain_reduce,
    chain_scan,
    chain_shift,
)
from collectives.schedules.circulant import (
    circulant_all_gather,
    circulant_all_reduce,
    circulant_reduce_scatter,
)
from collectives.schedules.dissemination import dissemination
from collectives.schedules.halving_doubling import halving_doubling
from collectives.schedules.linear import linear_gather, linear_scatter
from collectives.schedules.pairwise import (
    pairwise_all_reduce,
    pairwise_all_to_all,
    pairwise_reduce_scatter,
)
from collectives.schedules.recursive_doubling import recursive_doubling
from collectives.schedules.ring import (
    ring_all_gather,
    ring_all_reduce,
    ring_reduce,
    ring_reduce_scatter,
)
from collectives.schedules.step import NOTHING, Run, Schedule, Step
from collectives.schedules.tree import (
    tree_broadcast,
    tree_gather,
    tree_reduce,
    tree_scatter,
)

__all__ = [
    "NOTHING",
    "Run",
    "Schedule",
    "Step",
    "chain_all_reduce",
    "chain_broadcast",
    "chain_reduce",
    "chain_scan",
    "chain_shift",
    "circulant_all_gather",
    "circulant_all_reduce",
    "circulant_reduce_scatter",
    "dissemination",
    "halving_doubling",
    "linear_gather",
    "linear_scatter",
    "pairwise_all_reduce",
    "pairwise_all_to_all",
    "pairwise_reduce_scatter",
    "recursive_doubling",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce",
    "ring_reduce_scatter",
    "tree_broadcast",
    "tree_gather",
    "tree_reduce",
    "tree_scatter",
]
