"""How the values of several replicas become one."""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import DTypeLike

from strategy.errors import ReduceOpError


class ReduceOp(Enum):
    """SUM adds the replicas' values, MEAN also divides by the number of replicas."""

    SUM = "SUM"
    MEAN = "MEAN"

    def __str__(self) -> str:
        """Return the name alone."""
        return self.value

    @classmethod
    def parse(cls, op: ReduceOp | str) -> ReduceOp:
        """Return the member that `op` names, in any case.

        Raises `ValueError` for an unknown name, `ReduceOpError` for any other object.
        """
        if isinstance(op, cls):
            return op
        if not isinstance(op, str):
            raise ReduceOpError(f"reduce_op is {op!r}; wanted a ReduceOp or its name")
        if op.upper() not in cls.__members__:
            known = " ".join(cls.__members__)
            raise ValueError(f"reduce_op is {op!r}; wanted one of: {known}")
        return cls[op.upper()]


class VariableAggregation(Enum):
    """What a variable makes of the values that its replicas assign to it."""

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3


class VariableSynchronization(Enum):
    """When a variable's components are brought together; AUTO means ON_WRITE."""

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


def mean_dtype(dtype: DTypeLike) -> np.dtype[np.generic]:
    """Return the dtype of a MEAN: floats keep theirs, integers divide truly.

    8- and 16-bit integers give float32, wider ones float64, as true division does
    in TensorFlow.
    """
    dtype = np.dtype(dtype)
    if dtype.kind not in "iu":
        return dtype
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)
