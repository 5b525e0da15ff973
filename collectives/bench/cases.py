"""What can be measured: one row per collective, with the factors of nccl-tests."""

from __future__ import annotations

from dataclasses import replace

from collectives.bench import ours, packed, raw, raw_nccl, registered, wanted
from collectives.bench.case import IN_PLACE, OUT_OF_PLACE, Case, Runner, staged
from collectives.bench.packed import PACK_BYTES

__all__ = ["CASES", "CUDA", "DEVICES", "HOST", "cases_on"]

HOST, CUDA = "cpu", "cuda"
DEVICES = (HOST, CUDA)
NCCL_BASELINE = "raw_nccl"


def _both(runner: Runner) -> dict[str, Runner]:
    return {OUT_OF_PLACE: runner, IN_PLACE: runner}


def _twice_all_but_own(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


def _all_but_own(ranks: int) -> float:
    return (ranks - 1) / ranks


def _as_it_is(ranks: int) -> float:
    return 1.0


CASES = {
    case.name: case
    for case in (
        Case(
            "all_reduce",
            _twice_all_but_own,
            ours=_both(ours.all_reduce),
            raw=_both(raw.all_reduce),
            blocks=wanted.combined,
            reduces=True,
            overwrites=True,
            registered={p: staged(ours.all_reduce) for p in (OUT_OF_PLACE, IN_PLACE)},
            shared={OUT_OF_PLACE: registered.all_reduce_shared},
        ),
        Case(
            "all_reduce_many",
            _twice_all_but_own,
            ours=_both(ours.all_reduce_many),
            raw=_both(raw.all_reduce_many),
            blocks=wanted.combined,
            reduces=True,
            overwrites=True,
            listed=True,
            registered={IN_PLACE: registered.all_reduce_many},
            algorithms="all_reduce",
            by_hand={name: _both(packed.all_reduce_many) for name in PACK_BYTES},
        ),
        Case(
            "reduce",
            _as_it_is,
            ours=_both(ours.reduce),
            raw=_both(raw.reduce),
            blocks=wanted.at_root(wanted.combined),
            reduces=True,
            rooted=True,
        ),
        Case(
            "reduce_scatter",
            _all_but_own,
            ours=_both(ours.reduce_scatter),
            raw=_both(raw.reduce_scatter),
            blocks=wanted.combined_part,
            reduces=True,
            by_parts=True,
            part="receive",
            at_start=True,  # where MPI leaves it
        ),
        Case(
            "scan",
            _as_it_is,
            ours=_both(ours.scan),
            raw=_both(raw.scan),
            blocks=wanted.combined_to_here,
            reduces=True,
            overwrites=True,
        ),
        Case(
            "exclusive_scan",
            _as_it_is,
            ours=_both(ours.exclusive_scan),
            raw=_both(raw.exclusive_scan),
            blocks=wanted.combined_before,
            reduces=True,
            overwrites=True,
        ),
        Case(
            "broadcast",
            _as_it_is,
            ours=_both(ours.broadcast),
            raw={IN_PLACE: raw.broadcast},
            blocks=wanted.roots,
            rooted=True,
        ),
        Case(
            "broadcast_many",
            _as_it_is,
            ours=_both(ours.broadcast_many),
            raw={IN_PLACE: raw.broadcast_many},
            blocks=wanted.roots,
            rooted=True,
            listed=True,
            algorithms="broadcast",
            by_hand={name: {IN_PLACE: packed.broadcast_many} for name in PACK_BYTES},
        ),
        Case(
            "all_gather",
            _all_but_own,
            ours=_both(ours.all_gather),
            raw=_both(raw.all_gather),
            blocks=wanted.whole_of_each,
            by_parts=True,
            part="send",
        ),
        Case(
            "gather",
            _all_but_own,
            ours=_both(ours.gather),
            raw=_both(raw.gather),
            blocks=wanted.at_root(wanted.whole_of_each),
            rooted=True,
            by_parts=True,
            part="send",
        ),
        Case(
            "scatter",
            _all_but_own,
            ours=_both(ours.scatter),
            raw=_both(raw.scatter),
            blocks=wanted.root_part,
            rooted=True,
            by_parts=True,
            part="receive",
        ),
        Case(
            "all_to_all",
            _all_but_own,
            ours=_both(ours.all_to_all),
            raw=_both(raw.all_to_all),
            blocks=wanted.part_of_each,
            by_parts=True,
            overwrites=True,
        ),
        Case(
            "send",
            _as_it_is,
            ours={OUT_OF_PLACE: ours.ping_pong},
            raw={OUT_OF_PLACE: raw.ping_pong},
            blocks=wanted.from_partner,
            messages=2,
            fewest_ranks=2,
        ),
        Case(
            "exchange",
            _as_it_is,
            ours={OUT_OF_PLACE: ours.exchange},
            raw={OUT_OF_PLACE: raw.exchange},
            blocks=wanted.from_left,
            fewest_ranks=2,
        ),
        Case(
            "barrier",
            lambda ranks: 0.0,
            ours={IN_PLACE: ours.barrier},
            raw={IN_PLACE: raw.barrier},
            blocks=wanted.nothing,
            sized=False,
        ),
    )
}


def _with_device_arrays(case: Case) -> Case:
    """Return the case of the same collective with arrays on GPUs."""
    runner = raw_nccl.RUNNERS.get(case.name)
    return replace(
        case,
        baseline=NCCL_BASELINE,
        raw=dict.fromkeys(case.ours, runner) if runner else {},
        by_hand={name: {OUT_OF_PLACE: copy} for name, copy in raw_nccl.COPIES.items()},
        unlike=frozenset(raw_nccl.COPIES),
        at_start=False,  # NCCL leaves a part where it is in the whole
        registered={},
        shared={},
    )


def cases_on(device: str) -> dict[str, Case]:
    """Return what can be measured with arrays there."""
    if device == HOST:
        return CASES
    moving = (case for case in CASES.values() if case.sized and case.messages == 1)
    return {case.name: _with_device_arrays(case) for case in moving if not case.listed}
