"""What a program on several ranks has to tell: checks, in a file of one JSON a line."""

import json
from pathlib import Path


class Report:
    """Checks that all ranks make together; rank 0 writes what came out."""

    def __init__(self, comm, path):
        """Write to a file that is new, or goes on."""
        self.comm, self.path = comm, Path(path)

    def check(self, name, problem, **figures):
        """Tell how a check went: `problem` is this rank's complaint, empty if none."""
        everyones = self.comm.all_gather_object(problem)
        bad = [f"rank {rank}: {text}" for rank, text in enumerate(everyones) if text]
        if self.comm.rank == 0:
            line = {"check": name, "ok": not bad, "problem": "; ".join(bad), **figures}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
