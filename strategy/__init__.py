"""The programming model of `tf.distribute` on NumPy arrays and MPI.

Written `import strategy as distribute`: names and behaviour are those of
`tf.distribute`. Numbers become arrays by NumPy's rules (a Python float is float64).
"""

from strategy import cluster_resolver, data, experimental, gradients
from strategy.base import Strategy
from strategy.central_storage import CentralStorageStrategy
from strategy.checkpoint import Checkpoint, CheckpointManager
from strategy.communication import Communication
from strategy.contexts import (
    experimental_set_strategy,
    has_strategy,
    in_cross_replica_context,
)
from strategy.cross_device_ops import (
    CrossDeviceOps,
    ReductionToOneDevice,
)
from strategy.distributed_dataset import DistributedDataset, DistributedIterator
from strategy.errors import (
    CheckpointError,
    ClusterError,
    DamagedCheckpointError,
    ElementTypeError,
    InputError,
    MergeCallError,
    MixedStrategiesError,
    OutOfRangeError,
    ReduceOpError,
    StructureError,
    UnbatchedError,
)
from strategy.extended import StrategyExtended
from strategy.indexed_slices import IndexedSlices
from strategy.input_context import InputContext, InputOptions, InputReplicationMode
from strategy.mirrored import MirroredStrategy
from strategy.multi_worker import MultiWorkerMirroredStrategy
from strategy.one_device import OneDeviceStrategy
from strategy.options import (
    CollectiveCommunication,
    CommunicationImplementation,
    CommunicationOptions,
    RunOptions,
)
from strategy.packed_ops import HierarchicalCopyAllReduce, NcclAllReduce
from strategy.reduce_op import ReduceOp, VariableAggregation, VariableSynchronization
from strategy.reduction import Reduction
from strategy.replica_context import (
    ReplicaContext,
    get_replica_context,
    get_strategy,
)
from strategy.values import DistributedValues, Mirrored, PerReplica, ValueContext
from strategy.variables import Component, Variable

__all__ = [
    "CentralStorageStrategy",
    "Checkpoint",
    "CheckpointError",
    "CheckpointManager",
    "ClusterError",
    "CollectiveCommunication",
    "Communication",
    "CommunicationImplementation",
    "CommunicationOptions",
    "Component",
    "CrossDeviceOps",
    "DamagedCheckpointError",
    "DistributedDataset",
    "DistributedIterator",
    "DistributedValues",
    "ElementTypeError",
    "HierarchicalCopyAllReduce",
    "IndexedSlices",
    "InputContext",
    "InputError",
    "InputOptions",
    "InputReplicationMode",
    "MergeCallError",
    "Mirrored",
    "MirroredStrategy",
    "MixedStrategiesError",
    "MultiWorkerMirroredStrategy",
    "NcclAllReduce",
    "OneDeviceStrategy",
    "OutOfRangeError",
    "PerReplica",
    "ReduceOp",
    "ReduceOpError",
    "Reduction",
    "ReductionToOneDevice",
    "ReplicaContext",
    "RunOptions",
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
    "experimental",
    "experimental_set_strategy",
    "get_replica_context",
    "get_strategy",
    "gradients",
    "has_strategy",
    "in_cross_replica_context",
]
