"""Prefix reductions along a chain of ranks, strictly left to right."""

from __future__ import annotations

import numpy as np

from collectives.algorithms.stepwise import Task, run_schedule
from collectives.schedules import chain_scan, chain_shift


def inclusive(task: Task) -> None:
    """Leave `x0 op … op xr` in `work`."""
    group = task.group
    run_schedule(task, chain_scan(group.rank, group.size), needed=range(group.size))


def exclusive(task: Task) -> None:
    """Leave `x0 op … op x(r-1)` in `work`; on rank 0 `work` keeps what it has."""
    group = task.group
    prefix = np.empty_like(task.source)
    inclusive(
        Task(
            group,
            task.bounds,
            task.source,
            prefix,
            task.kernel,
            timeout_s=task.timeout_s,
            segment_bytes=task.segment_bytes,
        )
    )
    run_schedule(
        Task(
            group,
            task.bounds,
            prefix,
            task.work,
            timeout_s=task.timeout_s,
            segment_bytes=task.segment_bytes,
            source_bounds=task.bounds,
        ),
        chain_shift(group.rank, group.size),
    )
