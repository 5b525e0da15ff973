"""Leaving a group: nobody goes before all have said that they go."""

from __future__ import annotations

from collectives.board import State
from collectives.ending import say
from collectives.group import WARN_S, Group
from collectives.waiting import PeerLost, wait_until


def leave(group: Group, patience_s: float) -> None:
    """Tell the others that this rank makes no further calls; wait for theirs.

    Afterwards nobody can be stuck in a collective that needs this rank, and MPI can be
    finalized without waiting.

    Raises:
        TimedOut: some rank did not leave within `patience_s` of polling.
        PeerLost: a rank died instead, or waits for a call that this one never makes.
    """
    for one in (group, *group.derived):
        if one.device_window is not None:
            one.device_window.leave()  # who has said farewell has nothing open any more
        if one.board is not None and not one.closed:
            one.board.set_state(State.LEFT)
    group.doing = "leaving"
    farewells, told_s = group.farewells, WARN_S

    def health(waited_s: float) -> None:
        nonlocal told_s
        _look(group)
        if waited_s > told_s:
            told_s = waited_s + WARN_S
            say(
                f"ringfold: rank {group.rank} has finished and waits, since "
                f"{waited_s:.0f} s, for others to finish"
            )

    for step in range(len(farewells.rounds)):
        farewells.send(step, group.sequence)
        wait_until(
            lambda step=step: farewells.received(step),  # type: ignore[misc]
            timeout_s=patience_s,
            spins=0,
            health=health,
        )


def _look(group: Group) -> None:
    """Notice ranks that died, and those that wait for a call we shall not make."""
    if group.board is None:
        return
    seen = {rank: group.board.seen(rank) for rank in group.topology.local_ranks}
    for rank, sighting in seen.items():
        if sighting.state is State.CALL and sighting.sequence > group.sequence:
            raise PeerLost(group.rank, f"left while rank {rank} {sighting}")
    for rank in group.liveness.dead() if group.liveness is not None else []:
        if seen[rank].state is not State.LEFT:  # who had left has simply ended first
            raise PeerLost(rank, "died")
