"""The latest few checkpoints in a folder."""

from __future__ import annotations

from pathlib import Path

from strategy.checkpoint import file
from strategy.checkpoint.checkpoint import Checkpoint, PathLike, on_chief


class CheckpointManager:
    """Saves to `directory/checkpoint_name-N.npz` and deletes the oldest ones.

    Making one is collective, and so are its methods; its properties are not.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: PathLike,
        max_to_keep: int | None,
        checkpoint_name: str = "ckpt",
    ) -> None:
        """Look what is in `directory`, which is made when first saved to.

        Args:
            checkpoint: what to save.
            directory: where; rank 0 must see it.
            max_to_keep: how many files stay; None deletes none.
            checkpoint_name: what the files' names begin with.
        """
        if max_to_keep is not None and max_to_keep < 1:
            raise ValueError(f"max_to_keep is {max_to_keep}; wanted None, or 1 or more")
        self.checkpoint, self.max_to_keep = checkpoint, max_to_keep
        self.directory, self._name = str(directory), checkpoint_name
        self._folder = Path(directory)
        self._found = on_chief(
            checkpoint.comm, lambda: file.numbered(self._folder, checkpoint_name)
        )

    @property
    def checkpoints(self) -> list[str]:
        """The files that are kept, the oldest first."""
        return [str(path) for path in self._found.values()]

    @property
    def latest_checkpoint(self) -> str | None:
        """The file with the highest number, None where there is none."""
        return self.checkpoints[-1] if self._found else None

    def save(self, checkpoint_number: int | None = None) -> str:
        """Save under the next number, or the given one; return the file's name.

        Only after the new file is whole are the oldest ones deleted.
        """
        number = max(self._found, default=0) + 1
        if checkpoint_number is not None:
            number = checkpoint_number
        path = self.checkpoint.write(self._folder / f"{self._name}-{number}")
        self._found[number] = Path(path)
        self._found = dict(sorted(self._found.items()))
        surplus = len(self._found) - (self.max_to_keep or len(self._found))
        old = [other for other in self._found if other != number][:surplus]
        on_chief(self.checkpoint.comm, lambda: self._delete(old))
        for other in old:
            del self._found[other]
        return path

    def restore_or_initialize(self) -> str | None:
        """Restore the latest checkpoint, if there is one; return its name."""
        return self.checkpoint.restore(self.latest_checkpoint)

    def _delete(self, numbers: list[int]) -> None:
        """Delete files, and what a save that was killed has left."""
        for number in numbers:
            self._found[number].unlink(missing_ok=True)
        file.sweep(self._folder, self._name)
