"""Which pretended devices this process sees; read from the environment once.

CUPY_DOUBLE_GPUS    how many devices a host has (default: as many as PLACES names)
CUPY_DOUBLE_PLACES  the device that is current at first, by rank: "0,0,1"; "-": the rank
                    sees no device; "x": its host has no driver either
CUPY_DOUBLE_HOSTS   the host of each rank, "0,0,1,1": devices of different hosts differ
CUPY_DOUBLE_LACKS   words of what is missing: "nccl", "peer" (devices cannot read each
                    other), "ipc"
CUDA_VISIBLE_DEVICES is followed as the driver does: numbers or UUIDs.
"""

import hashlib
import os
import uuid
from dataclasses import dataclass

NONE = ("-", "x")
RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")


@dataclass(frozen=True)
class Config:
    """The devices of this process, in the order of their numbers here."""

    host: int
    visible: tuple[int, ...]
    """The place on the host of each device that is seen."""
    first: int
    """The number of the device that is current at first."""
    lacks: frozenset[str]
    on_host: int
    """How many devices this host has, seen or not."""

    def uuid(self, device: int) -> bytes:
        """Return 16 bytes that name a device in all processes of all hosts."""
        return uuid_of(self.host, self.visible[device])


def uuid_of(host: int, place: int) -> bytes:
    return hashlib.md5(f"double {host} {place}".encode()).digest()


def uuid_text(octets: bytes) -> str:
    """Return a UUID as the driver writes it."""
    return f"GPU-{uuid.UUID(bytes=octets)}"


def rank() -> int:
    """Return the rank that a launcher gave this process; 0 where none did."""
    return next((int(os.environ[n]) for n in RANK_VARIABLES if n in os.environ), 0)


def _of_rank(name: str, default: str) -> list[str]:
    return os.environ.get(name, default).split(",")


def read() -> Config:
    """Read the environment."""
    places, hosts = (
        _of_rank("CUPY_DOUBLE_PLACES", "0"),
        _of_rank("CUPY_DOUBLE_HOSTS", "0"),
    )
    mine, host = places[rank() % len(places)], int(hosts[rank() % len(hosts)])
    named = [int(place) for place in places if place not in NONE]
    count = int(os.environ.get("CUPY_DOUBLE_GPUS") or max(named, default=0) + 1)
    visible = tuple(range(count)) if mine not in NONE else ()
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is not None:
        visible = tuple(_seen(told, host, visible))
    first = visible.index(int(mine)) if mine in map(str, visible) else 0
    lacks = frozenset(os.environ.get("CUPY_DOUBLE_LACKS", "").split())
    return Config(host, visible, first, lacks, 0 if mine == "x" else count)


def _seen(told: str, host: int, there: tuple[int, ...]) -> list[int]:
    """Return the devices that CUDA_VISIBLE_DEVICES names, up to the first unknown."""
    names = {uuid_text(uuid_of(host, place)): place for place in there}
    seen = []
    for word in told.split(","):
        place = int(word) if word.strip().isdigit() else names.get(word.strip(), -1)
        if place not in there:
            break
        seen.append(place)
    return seen


CONFIG = read()
