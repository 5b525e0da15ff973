"""Registered arrays, as methods of a communicator: where they are, how to get one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from collectives import registered
from collectives.errors import InvalidArgumentError
from collectives.gpu import pinned
from collectives.gradient_packs import GradientPacks
from collectives.group import Group
from collectives.transport import exported

DEVICES: dict[str, Callable[[Group, Any, Any], Any]] = {
    "cpu": lambda group, shape, dtype: registered.empty(group.arena, shape, dtype),
    "pinned": lambda group, shape, dtype: pinned.empty(group.arena, shape, dtype),
    "cuda": lambda group, shape, dtype: exported.empty(shape, dtype),
}
"""Where registered arrays can be."""


class Memory:
    """Makes registered arrays; `Communicator` brings the ranks that share them."""

    _group: Group

    def empty(self, shape: Any, dtype: Any = float, device: str = "cpu") -> Any:
        """Return a registered array, which calls on this host need not copy first.

        It is a NumPy array like any other, in memory that the ranks of the host share;
        where none is shared it is an ordinary one. Not collective: each rank may make
        what it likes. Its memory is given back when its last view is gone.

        Args:
            shape: of the array.
            dtype: of its elements.
            device: `cpu`; `pinned`, which GPUs copy from and to without the processor;
                or `cuda`: a CuPy array on the current GPU, which other ranks of the
                host read where it is.

        Raises:
            MemoryError: the machine, or the GPU, has no memory for it.
            UnsupportedError: there is no GPU here, or no CuPy.
            BrokenCommunicatorError: this one was closed, or the process was forked.
        """
        self._group.check_open()
        if device not in DEVICES:
            raise InvalidArgumentError(
                f"device is {device!r}; wanted one of {', '.join(DEVICES)}"
            )
        return DEVICES[device](self._group, shape, dtype)

    def zeros(self, shape: Any, dtype: Any = float, device: str = "cpu") -> Any:
        """Return a registered array of zeros; see `empty`."""
        return self.full(shape, 0, dtype, device)

    def full(
        self, shape: Any, value: Any, dtype: Any = float, device: str = "cpu"
    ) -> Any:
        """Return a registered array filled with a value; see `empty`."""
        array = self.empty(shape, dtype, device)
        array[...] = value
        return array

    def packs(self, arrays: Sequence[Any], device: str = "cpu") -> GradientPacks:
        """Return registered memory, twice, for a list of arrays that is reduced often.

        ::

            packs = comm.packs(parameters)
            for batch in batches:
                gradients = packs.next()         # one array for each parameter
                compute_into(gradients, batch)
                comm.all_reduce_many(gradients, "mean", out=gradients)

        Args:
            arrays: their shapes and dtypes are what counts.
            device: where the memory is; see `empty`.
        """
        return GradientPacks(partial(self.empty, device=device), arrays)
