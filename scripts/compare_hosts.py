#!/usr/bin/env python3
"""All-reduces across hosts, beside what the network allows; run under mpirun.

The limit is what each host must send, 2 n (h-1)/h of n bytes on h hosts, at the rate of
a plain transfer to the next host and from the one before, all ranks taking part, in one
message each or in pieces of 60 KB: whatever is faster. All of it takes turns; the times
are those of the slowest rank.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from mpi4py import MPI

import collectives
from collectives.bench.shapes import read_shapes, tensors
from collectives.lanes import lanes_of

WORLD = MPI.COMM_WORLD
PIECES = (1 << 30, 60_000)


def transfer(nbytes: int, piece: int) -> Callable[[], object]:
    """Return what sends so many bytes from each host to the next one."""
    lanes = lanes_of(collectives.world().topology)
    hosts, share = len(lanes.hosts), nbytes // lanes.count
    to, origin = (lanes.host + 1) % hosts, (lanes.host - 1) % hosts
    rows = [(lane, *np.ones((2, share), np.uint8)) for lane in lanes.mine]

    def run() -> None:
        requests = []
        for lane, incoming, outgoing in rows:
            for low in range(0, share, piece):
                span, peer = slice(low, low + piece), lanes.carrier(origin, lane)
                requests.append(WORLD.Irecv(incoming[span], peer, lane))
                peer = lanes.carrier(to, lane)
                requests.append(WORLD.Isend(outgoing[span], peer, lane))
        MPI.Request.Waitall(requests)

    return run


def calls(flat: np.ndarray, parts: list, registered: np.ndarray) -> dict:
    """Return the all-reduces to be compared, by name."""
    comm = collectives.world()
    if len(parts) > 1:
        return {
            "mpi": lambda: [WORLD.Allreduce(MPI.IN_PLACE, part) for part in parts],
            "all_reduce_many": lambda: comm.all_reduce_many(parts, out=parts),
        }

    def by(name: str, x: np.ndarray) -> Callable[[], object]:
        return lambda: comm.all_reduce(x, out=x, algorithm=name)

    return {
        "mpi": lambda: WORLD.Allreduce(MPI.IN_PLACE, flat),
        "native": by("native", flat),
        "ring": by("ring", flat),
        "hierarchical_copy": by("hierarchical_copy", flat),
        "hierarchical": by("hierarchical", flat),
        "hierarchical, registered": by("hierarchical", registered),
    }


def measure(ways: dict, turns: int) -> dict[str, list[float]]:
    """Return the milliseconds that each way took in its turns; the first warms up."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, run in ways.items():
            WORLD.Barrier()
            start = time.perf_counter()
            run()
            took = WORLD.allreduce(time.perf_counter() - start, op=MPI.MAX)
            if turn:
                times[name].append(took * 1e3)
    return times


def main() -> None:
    """Print a table for each size, or for the gradients of a model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=float, nargs="*", default=[16, 64])
    parser.add_argument("--shapes", help="a model, such as resnet50")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="of the names in the first column")
    options = parser.parse_args()
    comm = collectives.world()
    hosts = len(comm.topology.hosts)
    if hosts < 2:
        parser.error("all ranks are on one host; wanted two at least")
    lists = [((int(mib * (1 << 18)),),) for mib in options.mebibytes]
    if options.shapes:
        lists = [read_shapes(options.shapes).shapes]
    for shapes in lists:
        count = sum(int(np.prod(shape)) for shape in shapes)
        flat, registered = np.zeros(count, np.float32), comm.zeros(count, np.float32)
        must = int(2 * flat.nbytes * (hosts - 1) / hosts)
        wire = {f"transfer, {piece}": transfer(must, piece) for piece in PIECES}
        ours = calls(flat, tensors(flat, shapes), registered)
        if options.only:
            ours = {name: ours[name] for name in options.only if name in ours}
        times = measure({**wire, **ours}, options.turns)
        if comm.rank == 0:
            limit = min(min(times[name]) for name in wire)
            mpi = comm.topology.mpi
            print(
                f"{mpi.vendor} {mpi.version}, ranks on hosts {comm.topology.host_of}: "
                f"{flat.nbytes / (1 << 20):.1f} MiB in {len(shapes)} arrays; "
                f"limit {limit:.1f} ms, {must / limit / 1e3:.1f} MB/s"
            )
            for name, took in times.items():
                share = limit / min(took)
                print(f"{name:26} {min(took):8.1f} {median(took):8.1f} {share:6.1%}")
            print(flush=True)


if __name__ == "__main__":
    main()
