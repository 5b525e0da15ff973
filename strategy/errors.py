"""Errors of the front end; each is also the builtin that a caller would catch."""

from __future__ import annotations

import collectives


class StructureError(ValueError, AssertionError):
    """A value does not have the structure that the operation needs.

    An `AssertionError` too, because that is what `tf.distribute` raises here.
    """


class ReduceOpError(TypeError, AssertionError):
    """Something that is no way to reduce, such as a `VariableAggregation`.

    `tf.distribute` raises one or the other, depending on the other arguments.
    """


class ElementTypeError(ValueError, TypeError):
    """The elements of an array are not numbers that the operation can work on."""


class ClusterError(collectives.LaunchError, ValueError):
    """The cluster description and the ranks that were started disagree."""


class MixedStrategiesError(RuntimeError):
    """A strategy, or one of its variables, is used inside another's scope."""


class MergeCallError(RuntimeError):
    """The replicas of a process did not all meet at the same call."""


class UnbatchedError(ValueError, IndexError):
    """A dataset whose elements have no rows to share out.

    An `IndexError` too, because that is what `tf.distribute` raises here.
    """


class OutOfRangeError(IndexError):
    """The next step of a dataset was asked for after the last one."""


class InputError(RuntimeError):
    """Another rank could not make its input, or makes another one."""


class CheckpointError(ValueError):
    """A checkpoint and the variables, or what the ranks ask for, do not fit."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint file is not what was written."""
