"""Python imports this at its start where this folder is on PYTHONPATH."""

import double_setup

double_setup.install()
