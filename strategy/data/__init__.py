"""Input pipelines: what `tf.data` is for, on NumPy arrays and files.

from strategy import data
batches = data.Dataset.from_tensor_slices((x, y)).shuffle().batch(64)
"""

from strategy.data.dataset import Dataset
from strategy.data.options import AutoShardPolicy, DistributeOptions, Options
from strategy.data.sources import INFINITE, UNKNOWN
from strategy.data.spec import TensorSpec
from strategy.data.stages import AUTOTUNE, SHARD_HINT

INFINITE_CARDINALITY, UNKNOWN_CARDINALITY = INFINITE, UNKNOWN  # tf.data's names

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "SHARD_HINT",
    "UNKNOWN_CARDINALITY",
    "AutoShardPolicy",
    "Dataset",
    "DistributeOptions",
    "Options",
    "TensorSpec",
]
