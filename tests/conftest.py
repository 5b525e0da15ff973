"""Loads the test harness; see docs/testing.md."""

pytest_plugins = ["harness.plugin"]
