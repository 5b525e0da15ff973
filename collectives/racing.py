"""Algorithms that race: what is the fastest here is found out by using it.

Which of several algorithms is the fastest depends on the MPI, on the machine, and on
what the machine does at the moment: where two ranks run can make the same call four
times slower within a second. So calls of one kind and size are made by whichever of the
*rivals* was the fastest of late, and once in a while by one of the others, for as
little as it costs (Faraj, Yuan, Lowenthal: STAR-MPI, ICS 2006).

All rivals give the same bits. One rank decides, and tells the others in the hand-over
with which the call begins.
"""

from __future__ import annotations

from collections.abc import Sequence

TRIALS = 2  # before anything is concluded; the first one is always slow
REMEMBERED = 3  # the machine may have changed since
PATIENCE = 50  # at most 1/50 of the time goes into trying another one
LEAST_EXCESS = 0.2  # of the best time: those that are close are tried again soon


class Heat:
    """The rivals for calls of one kind and size, and their latest times."""

    def __init__(self, rivals: Sequence[str]) -> None:
        """Start with the first one."""
        self.rivals = tuple(rivals)
        self._times: list[list[float]] = [[] for _ in rivals]
        self._since = [0.0] * len(rivals)

    def pick(self) -> int:
        """Return the number of the rival that shall make the next call."""
        for number, times in enumerate(self._times):
            if len(times) < TRIALS:
                return number
        best, best_s = self.best()
        for number, times in enumerate(self._times):
            excess = max(min(times) - best_s, LEAST_EXCESS * best_s)
            if number != best and self._since[number] > PATIENCE * excess:
                return number
        return best

    def took(self, number: int, seconds: float) -> None:
        """Remember how long a rival took."""
        self._times[number] = [*self._times[number][1 - REMEMBERED :], seconds]
        for other in range(len(self.rivals)):
            self._since[other] += seconds
        self._since[number] = 0.0

    def best(self) -> tuple[int, float]:
        """Return the fastest rival and its time; the first one before there are any."""
        known = [(min(times), n) for n, times in enumerate(self._times) if times]
        seconds, number = min(known, default=(0.0, 0))
        return number, seconds

    def times_s(self) -> dict[str, float]:
        """Return the best of the latest times of each rival that has run."""
        return {
            name: min(times)
            for name, times in zip(self.rivals, self._times, strict=True)
            if times
        }


class Race:
    """All heats of a group."""

    def __init__(self) -> None:
        """Begin without any."""
        self._heats: dict[tuple[str, int, tuple[str, ...]], Heat] = {}

    def heat(self, collective: str, nbytes: int, rivals: tuple[str, ...]) -> Heat:
        """Return the heat for a kind of call and the power of two of its size."""
        key = (collective, nbytes.bit_length(), rivals)
        if key not in self._heats:
            self._heats[key] = Heat(rivals)
        return self._heats[key]
