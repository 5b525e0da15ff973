"""Tests on several hosts are skipped, with the reason, where none can be made."""

import pytest
from harness.hosts import obstacle

REASON = obstacle()


def pytest_collection_modifyitems(items):
    for item in items:
        if REASON and "hosts" in item.path.parts:
            item.add_marker(pytest.mark.skip(reason=REASON))


def pytest_terminal_summary(terminalreporter):
    if REASON:
        terminalreporter.write_line(f"tests/hosts was skipped: {REASON}")
