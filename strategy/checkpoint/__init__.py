"""Saving and restoring variables."""

from strategy.checkpoint.checkpoint import Checkpoint
from strategy.checkpoint.manager import CheckpointManager

__all__ = ["Checkpoint", "CheckpointManager"]
