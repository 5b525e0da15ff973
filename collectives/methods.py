"""Every collective, as a method: arguments, what they mean, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from collectives.calls import gathering, groups, many, objects, reducing, scattering
from collectives.calls.pairs import Given
from collectives.errors import InvalidArgumentError
from collectives.kernels import Op


class Collectives:
    """The collectives of a communicator; `Communicator` brings the ranks.

    `out` receives the result and may be the input itself; without it the result is a
    new array. `algorithm` is one of `ALGORITHMS[collective]`. `op` is one of `OPS`, or
    a function of two arrays, which is slower. Arrays may lie on a GPU (docs/gpu.md):
    the result does then as well, and it is complete when the call returns. `stream` is
    what the arrays' makers have queued work on, where that is not CuPy's current one.
    """

    def _submit(
        self,
        prepare: Callable[..., Any],
        *arguments: Any,
        out: Any = None,
        stream: Any = None,
    ) -> Any:
        raise NotImplementedError

    def _quickly(self, x: Any, op: Op, out: Any, algorithm: str | None) -> Any:
        raise NotImplementedError

    def _exchange(self, doing: str, pairs: Sequence[Given]) -> list[Any]:
        raise NotImplementedError

    def all_reduce(
        self,
        x: Any,
        op: Op = "sum",
        out: Any = None,
        algorithm: str | None = None,
        stream: Any = None,
    ) -> Any:
        """Combine `x` over all ranks, element by element.

        Args:
            x: array of the same shape and dtype on every rank.
            op: how to combine. `mean` of integers gives float64.
            out: where the result goes.
            algorithm: one of `ALGORITHMS["all_reduce"]`.

        Returns:
            The result, the same bits on every rank; `out` if that was given.
        """
        if stream is None:
            result = self._quickly(x, op, out, algorithm)
            if result is not None:
                return result
        return self._submit(
            reducing.all_reduce, x, op, out, algorithm, out=out, stream=stream
        )

    def reduce(
        self,
        x: Any,
        op: Op = "sum",
        root: int = 0,
        out: Any = None,
        algorithm: str | None = None,
        stream: Any = None,
    ) -> Any:
        """Combine `x` over all ranks for `root` alone; the others get None.

        `out` is looked at only on the root.
        """
        out = out if self._is(root) else None
        return self._submit(
            reducing.reduce, x, op, root, out, algorithm, out=out, stream=stream
        )

    def scan(
        self,
        x: Any,
        op: Op = "sum",
        exclusive: bool = False,
        out: Any = None,
        algorithm: str | None = None,
        stream: Any = None,
    ) -> Any:
        """Combine `x` over this rank and all before it, or only over those before it.

        Strictly in the order of ranks. With `exclusive`, rank 0 gets the identity of
        the op: 0 for a sum, the largest number for `min`.
        """
        return self._submit(
            reducing.scan, x, op, exclusive, out, algorithm, out=out, stream=stream
        )

    def reduce_scatter(
        self,
        x: Any,
        op: Op = "sum",
        axis: int = 0,
        splits: Sequence[int] | None = None,
        out: Any = None,
        algorithm: str | None = None,
        stream: Any = None,
    ) -> Any:
        """Combine `x` over all ranks; each rank gets its block of rows of the result.

        Args:
            x: array of the same shape and dtype on every rank.
            op: how to combine.
            axis: the axis that is cut.
            splits: rows for each rank, the same on every rank; as even as can be
                without it.
            out: where this rank's block goes.
            algorithm: one of `ALGORITHMS["reduce_scatter"]`.
        """
        return self._submit(
            reducing.reduce_scatter,
            x,
            op,
            axis,
            splits,
            out,
            algorithm,
            out=out,
            stream=stream,
        )

    def broadcast(
        self,
        x: Any,
        root: int = 0,
        out: Any = None,
        algorithm: str | None = None,
        stream: Any = None,
    ) -> Any:
        """Give every rank the root's array.

        On other ranks `x` tells shape and dtype, and its values do not matter; pass
        `out=x` to have it overwritten.
        """
        return self._submit(
            gathering.broadcast, x, root, out, algorithm, out=out, stream=stream
        )

    def all_gather(
        self,
        x: Any,
        axis: int = 0,
        out: Any = None,
        algorithm: str | None = None,
        stream: Any = None,
    ) -> Any:
        """Join the ranks' arrays along `axis`, in rank order.

        Lengths along `axis` may differ by rank; 0-d arrays are joined to shape (size,).
        """
        return self._submit(
            gathering.all_gather, x, axis, out, algorithm, out=out, stream=stream
        )

    def gather(
        self,
        x: Any,
        root: int = 0,
        axis: int = 0,
        out: Any = None,
        algorithm: str | None = None,
        stream: Any = None,
    ) -> Any:
        """Join the ranks' arrays along `axis` for `root` alone; the others get None.

        As `all_gather`; `out` is looked at only on the root.
        """
        out = out if self._is(root) else None
        return self._submit(
            gathering.gather, x, root, axis, out, algorithm, out=out, stream=stream
        )

    def scatter(
        self,
        x: Any = None,
        root: int = 0,
        axis: int = 0,
        splits: Sequence[int] | None = None,
        out: Any = None,
        algorithm: str | None = None,
        stream: Any = None,
    ) -> Any:
        """Give each rank its block of rows, along `axis`, of the root's array.

        `x`, `axis` and `splits` matter only on the root; without `splits` the rows are
        shared as evenly as can be.
        """
        return self._submit(
            scattering.scatter,
            x,
            root,
            axis,
            splits,
            out,
            algorithm,
            out=out,
            stream=stream,
        )

    def all_to_all(
        self,
        x: Any,
        axis: int = 0,
        splits: Sequence[int] | None = None,
        out: Any = None,
        algorithm: str | None = None,
        stream: Any = None,
    ) -> Any:
        """Send block r of the rows of `x` to rank r; get the ranks' blocks, joined.

        Args:
            x: array of the same dtype on every rank, and of the same shape but for the
                length along `axis`.
            axis: the axis that is cut, and along which the blocks are joined.
            splits: rows for each rank; as even as can be without it.
            out: where the joined blocks go.
            algorithm: one of `ALGORITHMS["all_to_all"]`.
        """
        return self._submit(
            scattering.all_to_all,
            x,
            axis,
            splits,
            out,
            algorithm,
            out=out,
            stream=stream,
        )

    def all_reduce_many(
        self,
        arrays: Sequence[Any],
        op: Op = "sum",
        out: Sequence[Any] | None = None,
        bytes_per_pack: int = 0,
        algorithm: str | None = None,
        stream: Any = None,
    ) -> list[Any]:
        """Combine each array of a list over all ranks; small ones travel together.

        Args:
            arrays: any shapes and dtypes, the same list on every rank.
            op: how to combine.
            out: one target for each array; a target may be its input.
            bytes_per_pack: how much travels together at most; 0 chooses.
            algorithm: one of `ALGORITHMS["all_reduce"]`, for every pack.
        """
        given = list(out) if isinstance(out, Iterator) else out
        result: list[Any] = self._submit(
            many.all_reduce_many,
            arrays,
            op,
            given,
            bytes_per_pack,
            algorithm,
            out=given,
            stream=stream,
        )
        return result

    def broadcast_many(
        self,
        arrays: Sequence[Any],
        root: int = 0,
        out: Sequence[Any] | None = None,
        bytes_per_pack: int = 0,
        algorithm: str | None = None,
        stream: Any = None,
    ) -> list[Any]:
        """Give every rank the root's list of arrays; small ones travel together."""
        given = list(out) if isinstance(out, Iterator) else out
        result: list[Any] = self._submit(
            many.broadcast_many,
            arrays,
            root,
            given,
            bytes_per_pack,
            algorithm,
            out=given,
            stream=stream,
        )
        return result

    def barrier(self) -> None:
        """Return when every rank has called this."""
        self._submit(groups.barrier)

    def broadcast_object(self, value: Any = None, root: int = 0) -> Any:
        """Give every rank the root's object, by pickle; for set-up, not for arrays."""
        return self._submit(objects.broadcast_object, value, root)

    def all_gather_object(self, value: Any) -> list[Any]:
        """Give every rank the list of all ranks' objects, by pickle."""
        result: list[Any] = self._submit(objects.all_gather_object, value)
        return result

    def gather_object(self, value: Any, root: int = 0) -> list[Any] | None:
        """Give the root the list of all ranks' objects, by pickle; the others None."""
        result: list[Any] | None = self._submit(objects.gather_object, value, root)
        return result

    def send(self, x: Any, peer: int) -> None:
        """Send an array to one rank, which must `recv` it; waits until it is gone."""
        _not_none("x", x)
        self._exchange("send", [(peer, x, None)])

    def recv(self, out: Any, peer: int) -> Any:
        """Receive an array of the dtype and shape of `out` from one rank, into `out`.

        Raises:
            MismatchError: the peer sent something else; `out` is untouched.
        """
        _not_none("out", out)
        self._exchange("recv", [(peer, None, out)])
        return out

    def exchange(self, pairs: Sequence[Given]) -> list[Any]:
        """Send to and receive from several ranks at once, such as a halo's neighbours.

        Args:
            pairs: `(peer, what to send or None, where to receive or None)`, in any
                order. Where two of them send to the same peer, or receive from it,
                each needs a tag of its own as a fourth element, a string or an integer:
                `(right, x, None, "to the right")` arrives in the peer's
                `(left, None, out, "to the right")`. On two periodic ranks, left and
                right are the same peer.

        Returns:
            What was received for each pair; None where nothing was wanted.
        """
        return self._exchange("exchange", pairs)

    def _is(self, root: int) -> bool:
        raise NotImplementedError


def _not_none(name: str, array: Any) -> None:
    """Refuse what in `exchange` means that there is nothing to move."""
    if array is None:
        raise InvalidArgumentError(f"{name} is None; wanted an array")
