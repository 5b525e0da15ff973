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

from collectives.board import TOOK

TRIALS = 2  # before anything is concluded; the first one is always slow
REMEMBERED = 3  # the machine may have changed since
STAY = 4  # calls until the next look: a look takes a hand-over and some microseconds
PATIENCE = 150  # at most 1/150 of the time goes into trying each of the others
LEAST_EXCESS = 0.2  # of the best time: those that are close are tried again soon


class Heat:
    """The rivals for calls of one kind and size, and their latest times."""

    def __init__(self, rivals: Sequence[str]) -> None:
        """Start with the first one."""
        self.rivals = tuple(rivals)
        self._times: list[list[float]] = [[] for _ in rivals]
        self._clock = 0.0
        """Seconds that all calls have taken."""
        self._tried = [0.0] * len(rivals)
        """What the clock was when each ran last."""
        self._stay = 0
        self.current, self.left = 0, 0
        """Who makes the next calls, and how many of them without another look."""

    def announce(self) -> int:
        """Decide who makes the next calls; return it as a number for `follow`."""
        return self.pick() * (STAY + 1) + self._stay

    def follow(self, announced: int) -> None:
        """Do as has been announced."""
        self.current, self.left = divmod(announced, STAY + 1)

    def pick(self) -> int:
        """Return the number of the rival that shall make the next call."""
        self._stay = 0
        for number, times in enumerate(self._times):
            if len(times) < TRIALS:
                return number
        best, best_s = self.best()
        for number, times in enumerate(self._times):
            excess = max(min(times) - best_s, LEAST_EXCESS * best_s)
            waited = self._clock - self._tried[number]
            if number != best and waited > PATIENCE * excess:
                return number
        self._stay = STAY
        return best

    def took(self, number: int, seconds: float) -> None:
        """Remember how long a rival took."""
        times = self._times[number]
        times.append(seconds)
        if len(times) > REMEMBERED:
            del times[0]
        self._clock += seconds
        self._tried[number] = self._clock

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
        self.turn = 0
        """0 and 1 by turns, the same on all ranks: which word says who runs. A root may
        be back from the MPI's broadcast, and in the next race, before another rank has
        read who was to run the last one."""
        self._ended = 0
        self._last: tuple[Heat, int] | None = None

    @property
    def took_word(self) -> int:
        """The word of the board in which each rank says how long it took last."""
        return TOOK + (self._ended & 1)

    def ended(self, heat: Heat, number: int) -> int:
        """Remember who has just run; return the word for how long it took.

        The ranks do not all take as long, and learn from each other in the hand-over
        of the next race what the slowest one took.
        """
        self._last = heat, number
        self._ended += 1
        return self.took_word

    def note(self, nanoseconds: int) -> None:
        """Note how long the last one took."""
        if self._last is not None:
            heat, number = self._last
            heat.took(number, nanoseconds / 1e9)
            self._last = None

    def heat(self, collective: str, nbytes: int, rivals: tuple[str, ...]) -> Heat:
        """Return the heat for a kind of call and the power of two of its size."""
        key = (collective, nbytes.bit_length(), rivals)
        if key not in self._heats:
            self._heats[key] = Heat(rivals)
        return self._heats[key]
