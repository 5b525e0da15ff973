"""How a phase of a test ended on each rank, and the report that all of them give."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest


@dataclass(frozen=True)
class Outcome:
    """What one rank tells the others."""

    word: str  # passed, failed, skipped or xfailed
    message: str = ""
    text: str = ""
    stop: float = 0.0

    @classmethod
    def of(cls, report: pytest.TestReport) -> "Outcome":
        """Describe this rank's own report."""
        if report.skipped:
            return cls("xfailed" if hasattr(report, "wasxfail") else "skipped")
        if report.passed:
            return cls("passed")
        crash = getattr(report.longrepr, "reprcrash", None)
        message = (crash.message if crash else report.longreprtext).partition("\n")[0]
        captured = [f"--- {title} ---\n{text}" for title, text in report.sections]
        text = "\n".join([report.longreprtext, *captured])
        return cls("failed", message, text, report.stop)


@dataclass(frozen=True)
class JointFailure:
    """A report's text in the form that pytest prints."""

    message: str
    text: str

    @property
    def reprcrash(self) -> Any:
        """The part that the summary's one line a test shows."""
        return SimpleNamespace(message=self.message)

    def toterminal(self, writer: Any) -> None:
        """Print the whole."""
        writer.line(str(self))

    def __str__(self) -> str:
        return f"{self.message}\n\n{self.text}"


def join(outcomes: Sequence[Outcome]) -> JointFailure | None:
    """Return what is wrong with these outcomes (by rank), None if nothing is.

    The traceback shown is that of the rank that failed first: the others often fail
    only because they waited for it in vain.
    """
    by_word: dict[str, list[int]] = {}
    for rank, outcome in enumerate(outcomes):
        by_word.setdefault(outcome.word, []).append(rank)
    if "failed" in by_word:
        bad = by_word["failed"]
        first = min(bad, key=lambda rank: outcomes[rank].stop)
        return JointFailure(
            f"ranks {bad} of {len(outcomes)}: {outcomes[first].message}",
            "\n".join(
                [
                    f"rank {first}:\n{outcomes[first].text}",
                    *(f"rank {r}: {outcomes[r].message}" for r in bad if r != first),
                ]
            ),
        )
    if len(by_word) > 1:
        split = ", ".join(f"{word} on ranks {who}" for word, who in by_word.items())
        return JointFailure(f"ranks disagree: {split}", "")
    return None
