"""What the double objects to, and its memory of that.

A `Misuse` that product code swallows is still a fault: all are recorded, and the
harness fails the test in which one happened.
"""

RECORDED: list[str] = []


class Misuse(BaseException):
    """Something that on a real GPU is a race, a crash or a wrong number.

    Not an `Exception`, so that nothing takes it for an error of the device.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        RECORDED.append(text)


def note(text: str) -> None:
    """Record a misuse where nothing can be raised, as in a finalizer."""
    RECORDED.append(text)


def forget() -> list[str]:
    """Return what was recorded, and begin anew."""
    told = RECORDED.copy()
    RECORDED.clear()
    return told
