"""The programming model of `tf.distribute` on NumPy arrays and MPI.

Written `import strategy as distribute`: names and behaviour are those of
`tf.distribute`. Numbers become arrays by NumPy's rules (a Python float is float64).
"""

from strategy import cluster_resolver, data
from strategy.base import Strategy
from strategy.checkpoint import Checkpoint, CheckpointManager
from strategy.contexts import has_strategy, in_cross_replica_context
from strategy.cross_device_ops import Communication
from strategy.distributed_dataset import DistributedDataset, DistributedIterator
from strategy.errors import (
    CheckpointError,
    ClusterError,
    DamagedCheckpointError,
    InputError,
    MixedStrategiesError,
    OutOfRangeError,
    StructureError,
    UnbatchedError,
)
from strategy.extended import StrategyExtended
from strategy.input_context import (
    InputContext,
    InputOptions,
    InputReplicationMode,
)
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
    "Checkpoint",
    "CheckpointError",
    "CheckpointManager",
    "ClusterError",
    "CollectiveCommunication",
    "Communication",
    "CommunicationImplementation",
    "CommunicationOptions",
    "DamagedCheckpointError",
    "DistributedDataset",
    "DistributedIterator",
    "DistributedValues",
    "InputContext",
    "InputError",
    "InputOptions",
    "InputReplicationMode",
    "Mirrored",
    "MixedStrategiesError",
    "MultiWorkerMirroredStrategy",
    "OutOfRangeError",
    "PerReplica",
    "ReduceOp",
    "ReplicaContext",
    "Strategy",
    "StrategyExtended",
    "StructureError",
    "UnbatchedError",
    "ValueContext",
    "Variable",
    "VariableAggregation",
    "VariableSynchronization",
    "cluster_resolver",
    "data",
    "get_replica_context",
    "get_strategy",
    "has_strategy",
    "in_cross_replica_context",
]
