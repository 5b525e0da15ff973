"""The programming model of `tf.distribute` on NumPy arrays and MPI.

Written `import strategy as distribute`: names and behaviour are those of
`tf.distribute`. Numbers become arrays by NumPy's rules (a Python float is float64).
"""

from strategy.base import Strategy
from strategy.cluster_resolver import ClusterResolver, TFConfigClusterResolver
from strategy.contexts import has_strategy, in_cross_replica_context
from strategy.cross_device_ops import Communication
from strategy.datasets import Dataset
from strategy.distributed_dataset import DistributedDataset
from strategy.errors import ClusterError, MixedStrategiesError, StructureError
from strategy.extended import StrategyExtended
from strategy.input_context import InputContext
from strategy.multi_worker import MultiWorkerMirroredStrategy
from strategy.options import (
    CollectiveCommunication,
    CommunicationImplementation,
    CommunicationOptions,
)
from strategy.reduce_op import ReduceOp, VariableAggregation, VariableSynchronization
from strategy.replica_context import (
    ReplicaContext,
    get_replica_context,
    get_strategy,
)
from strategy.values import DistributedValues, Mirrored, PerReplica, ValueContext
from strategy.variables import Variable

__all__ = [
    "ClusterError",
    "ClusterResolver",
    "CollectiveCommunication",
    "Communication",
    "CommunicationImplementation",
    "CommunicationOptions",
    "Dataset",
    "DistributedDataset",
    "DistributedValues",
    "InputContext",
    "Mirrored",
    "MixedStrategiesError",
    "MultiWorkerMirroredStrategy",
    "PerReplica",
    "ReduceOp",
    "ReplicaContext",
    "Strategy",
    "StrategyExtended",
    "StructureError",
    "TFConfigClusterResolver",
    "ValueContext",
    "Variable",
    "VariableAggregation",
    "VariableSynchronization",
    "get_replica_context",
    "get_strategy",
    "has_strategy",
    "in_cross_replica_context",
]
