"""Runs cases that TensorFlow produced against `strategy`; needs no TensorFlow.

A file of cases has one JSON object a line: `api`, `inputs`, `mode`, `strategy`, and
what TensorFlow gave: `expected`, `expected_per_worker` (one for each of two processes)
or `error`. What is run depends on the first four alone, never on a case's `id`.

runner.py reads, dispatches and counts; families/ has a function for each api;
encoding.py writes our values as the cases do, and compares; expressions.py reads values
written as text, such as `fill(r+1, r)`.
"""
