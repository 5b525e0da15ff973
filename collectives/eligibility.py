"""Which algorithms can make a call: what op, place and options allow."""

from __future__ import annotations

from collectives.algorithms import NATIVE, TABLE, Algorithm, native
from collectives.group import Group
from collectives.kernels import Kernel
from collectives.moves import RIDE_BYTES
from collectives.options import Options


def refusal(
    collective: str,
    name: str,
    nbytes: int,
    kernel: Kernel | None,
    group: Group,
    options: Options,
) -> str:
    """Return why an algorithm is not eligible; empty when it is."""
    row = TABLE[collective][name]
    why_not = out_of_order(row, kernel, options)
    if why_not:
        return why_not
    if row.needs_window and group.size > 1 and not group.one_board:
        return "the ranks do not all share one memory"
    if (row.needs_window or row.host_windows) and group.size > 1 and group.no_window:
        return group.no_window
    hosts = group.topology.host_of
    if row.host_by_host and list(hosts) != sorted(hosts):
        return "the ranks of a host do not follow each other"
    if row.needs_permission and group.not_direct:
        return group.not_direct
    if row.needs_mpi:
        if group.native is None:
            return "this world runs without MPI"
        if nbytes > options.mpi_limit_bytes:
            return (
                f"{nbytes} bytes; one MPI call gets {options.mpi_limit_bytes} at most"
            )
        crashes = native.crash(collective, group.topology)
        if crashes or kernel is None:
            return crashes
        return native.refusal(kernel)
    return ""


def out_of_order(row: Algorithm, kernel: Kernel | None, options: Options) -> str:
    """Return why an algorithm's order of ranks will not do; empty where it does."""
    if kernel is None or row.in_order:
        return ""
    if options.deterministic:
        return "deterministic needs an algorithm that combines in the order of ranks"
    if kernel.in_order:
        return "a function as op needs an algorithm that combines in rank order"
    return ""


def able(
    collective: str,
    nbytes: int,
    kernel: Kernel | None,
    group: Group,
    options: Options,
) -> tuple[str, ...]:
    """Return what could make a call; `exchange` is a ring for narrow floats."""
    return tuple(
        name
        for name in TABLE[collective]
        if not refusal(collective, name, nbytes, kernel, group, options)
        and name != "exchange"
        and not (TABLE[collective][name].host_windows and group.tuning.place.hosts == 1)
        and not (name == NATIVE and _carries_no_word(collective, nbytes, group))
    )


def can_race(
    said: str,
    collective: str,
    nbytes: int,
    kernel: Kernel | None,
    group: Group,
    options: Options,
) -> tuple[str, ...]:
    """Return those of a table's names that can make a call, now and with these bits.

    Several may race only where ranks share a board, and where all give the same bits.
    """
    asked = [name for name in said.split("+") if name in TABLE[collective]]
    if not asked or group.size == 1:
        return ()
    found = [
        name
        for name in asked
        if not refusal(collective, name, nbytes, kernel, group, options)
        and not (name == NATIVE and kernel is not None and narrow(kernel))
    ]
    if len(asked) > 1 and not (kernel is None or group.size == 2 or _exact(kernel)):
        found = [name for name in found if TABLE[collective][name].in_order]
    if len(asked) > 1 and kernel is not None and kernel.kind == "e" and group.size > 2:
        # They all work in one array, which others need in float32.
        found = [name for name in found if TABLE[collective][name].sums_stay]
    return tuple(found if group.one_board else found[:1])


def narrow(kernel: Kernel) -> bool:
    """Tell whether something is combined in a wider dtype than it has."""
    return kernel.work_dtype != kernel.result_dtype


def _exact(kernel: Kernel) -> bool:
    """Tell whether the order in which the ranks are combined makes no difference."""
    return kernel.work_dtype.kind in "biu" and not kernel.in_order


def _carries_no_word(collective: str, nbytes: int, group: Group) -> bool:
    """Tell whether `native` is out: a small call across hosts is its own agreement."""
    small = collective == "all_reduce" and nbytes <= RIDE_BYTES
    return small and group.tuning.place.hosts > 1
