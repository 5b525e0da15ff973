"""The functions that run cases: each file has a table `CASES`, api -> function.

A function gets a `Case` and returns the result, or raises, as the api would.
"""
