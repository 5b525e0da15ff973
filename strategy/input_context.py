"""What a process needs to know to make its own input, and how it shall be made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


@dataclass(frozen=True)
class InputContext:
    """Which of the input pipelines a process makes, for how many replicas."""

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Return a replica's part; `ValueError` unless all parts are equal."""
        if global_batch_size % self.num_replicas_in_sync:
            raise ValueError(
                f"global_batch_size is {global_batch_size}; wanted a multiple of the "
                f"{self.num_replicas_in_sync} replicas"
            )
        return global_batch_size // self.num_replicas_in_sync

    def __str__(self) -> str:
        return (
            f"tf.distribute.InputContext(input pipeline id {self.input_pipeline_id}, "
            f"total: {self.num_input_pipelines})"
        )


class InputReplicationMode(Enum):
    """How often a dataset function is called in a process."""

    PER_WORKER = "PER_WORKER"
    """Once; its elements go to the replicas in turn."""
    PER_REPLICA = "PER_REPLICA"
    """Once for each replica, which gets that dataset's elements."""


class InputOptions(NamedTuple):
    """How the input is made; on CPUs only the replication mode matters.

    With `experimental_fetch_to_device`, which is the default, batches are copied to the
    replicas' GPUs; else they stay where the dataset makes them.
    """

    experimental_fetch_to_device: bool | None = True
    experimental_replication_mode: InputReplicationMode = (
        InputReplicationMode.PER_WORKER
    )
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int = 1


def fetches(options: InputOptions | None) -> bool:
    """Return whether the options ask for batches where the replicas are."""
    return options is None or options.experimental_fetch_to_device is not False


def per_replica(options: InputOptions | None) -> bool:
    """Return whether the options ask for a dataset for each replica.

    Raises `ValueError` for options that contradict each other.
    """
    if options is None:
        return False
    mode = options.experimental_replication_mode
    wanted = mode is InputReplicationMode.PER_REPLICA
    if options.experimental_place_dataset_on_device:
        if not wanted:
            raise ValueError(
                "experimental_place_dataset_on_device without PER_REPLICA; wanted "
                "experimental_replication_mode=InputReplicationMode.PER_REPLICA with it"
            )
        if options.experimental_fetch_to_device in (None, True):
            raise ValueError(
                "experimental_place_dataset_on_device with "
                "experimental_fetch_to_device; wanted one of them: a dataset on the "
                "device has nothing to fetch"
            )
    return wanted
