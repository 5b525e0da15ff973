"""Pytest under mpirun: launching, agreement between ranks, and an end to every hang."""
