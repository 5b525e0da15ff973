"""Whether the ranks can use the GPUs that are there, and each one of its own."""

from __future__ import annotations

from collections.abc import Iterator

from collectives.doctor.facts import ProcessFacts
from collectives.doctor.findings import Check, Finding, Job, grouped, on_ranks, plural
from collectives.doctor.gpus import used
from collectives.doctor.hardware import each_host

NCCL_SHM = 64 << 20
"""What Docker gives a container for /dev/shm; with it NCCL ends in a system error."""
MIB = 1 << 20


def usable(job: Job) -> Iterator[Finding]:
    """Look for GPUs that are there and cannot be used."""
    problems = grouped(process.gpu.problem for process in job.processes)
    for problem, ranks in problems.items():
        if not problem:
            continue
        gpu = job.processes[ranks[0]].gpu
        newest, built = (text.partition(".")[0] for text in (gpu.cuda_driver, gpu.cuda))
        fits = gpu.cupy and not (newest and int(built) > int(newest))
        yield Finding(
            "warning",
            "GPU",
            f"{on_ranks(ranks)}: {problem}",
            "" if fits else f"pip install 'ringfold[cuda{newest or 13}]'",
        )


def versions(job: Job) -> Iterator[Finding]:
    """Look for NCCL, and for versions of it or of CuPy that differ."""
    with_gpu = [p.gpu for p in job.processes if p.gpu.devices]
    if not with_gpu:
        return
    for name in ("cupy", "nccl"):
        found = sorted({getattr(gpu, name) for gpu in with_gpu})
        if len(found) > 1:
            yield Finding(
                "warning",
                "GPU",
                f"{name} differs: {', '.join(text or 'none' for text in found)}",
                "install the same on all hosts",
            )
    if not all(gpu.nccl for gpu in with_gpu):
        major = with_gpu[0].cuda.partition(".")[0]
        yield Finding(
            "warning",
            "GPU",
            "CuPy finds no NCCL: sums of device arrays take other ways",
            f"pip install nvidia-nccl-cu{major}",
        )


@each_host
def sharing(processes: list[ProcessFacts], vendor: str) -> Iterator[Finding]:
    """Compare the ranks of a host with its GPUs, one after the other for each."""
    if not any(process.gpu.devices for process in processes):
        return
    lacking = [p for p in processes if not p.gpu.devices]
    if lacking:
        yield Finding(
            "warning",
            "GPU",
            f"{plural(len(lacking), 'rank')} of {len(processes)} without a GPU: device "
            "arrays of the others go through host memory",
            "look at CUDA_VISIBLE_DEVICES and at the launcher's GPU options",
        )
    owners: dict[str, list[ProcessFacts]] = {}
    for process in processes:
        device = used(process.gpu, process.topology)
        if device is not None:
            owners.setdefault(f"{device.uuid} {device.bus}", []).append(process)
    crowd = max(owners.values(), key=len)
    device = used(crowd[0].gpu, crowd[0].topology)
    assert device is not None
    if len(crowd) > 1:
        exclusive = device.compute_mode.startswith("exclusive")
        yield Finding(
            "error" if exclusive else "note",
            "GPU",
            f"up to {len(crowd)} ranks on one GPU"
            + (
                f" in compute mode {device.compute_mode}, which lets in one process"
                if exclusive
                else ": NCCL refuses that, so they go by CUDA IPC or host memory"
            ),
            f"start {plural(len(owners), 'rank')} on a host"
            + (", or nvidia-smi -c DEFAULT" if exclusive else ""),
        )
    elif not lacking:
        yield Finding("ok", "GPU", "each rank can have a GPU of its own")
    if any(d.compute_mode == "prohibited" for p in processes for d in p.gpu.devices):
        yield Finding(
            "error",
            "GPU",
            "a GPU in compute mode prohibited lets in nobody",
            "nvidia-smi -c DEFAULT",
        )


@each_host
def visible(processes: list[ProcessFacts], vendor: str) -> Iterator[Finding]:
    """Look whether CUDA_VISIBLE_DEVICES gives the ranks of a host different numbers."""
    values = {process.gpu.visible for process in processes}
    if len(values) > 1 and any(p.gpu.there for p in processes):
        texts = sorted("unset" if value is None else repr(value) for value in values)
        yield Finding(
            "note",
            "GPU",
            f"CUDA_VISIBLE_DEVICES differs: {', '.join(texts)}; GPU 0 is another one "
            "on each rank",
            "use GPU 0 on each rank, or unset it and use one GPU for each local rank",
        )


@each_host
def peers(processes: list[ProcessFacts], vendor: str) -> Iterator[Finding]:
    """Look whether the GPUs of a host can read each other's memory."""
    gpu = max((process.gpu for process in processes), key=lambda gpu: len(gpu.devices))
    if gpu.apart:
        pairs = " ".join(f"{one}-{other}" for one, other in gpu.apart[:6])
        more = ", …" if len(gpu.apart) > 6 else ""
        yield Finding(
            "note",
            "GPU",
            f"no peer access between GPUs {pairs}{more}: what goes between them goes "
            "through the host",
        )


@each_host
def shared_memory(processes: list[ProcessFacts], vendor: str) -> Iterator[Finding]:
    """Look whether NCCL has room in /dev/shm."""
    free = processes[0].memory.shm_free
    if free <= NCCL_SHM and len(processes) > 1 and processes[0].gpu.nccl:
        yield Finding(
            "warning",
            "GPU",
            f"{free // MIB} MiB of /dev/shm free: NCCL ends with an unhandled system "
            "error where it is too small",
            "docker run --shm-size=1g --ulimit memlock=-1",
        )


def trial(job: Job) -> Iterator[Finding]:
    """Report which ways device arrays can go, and how a trial went."""
    if job.gpus is None:
        return
    if job.gpus.problem:
        yield Finding("error", "GPU", job.gpus.problem)
        return
    closed = [f"not {way} ({why})" for way, why in job.gpus.refusals.items() if why]
    free = [way for way, why in job.gpus.refusals.items() if not why]
    first = free[0] if free else "host memory"
    text = f"a trial all_reduce of device arrays gave the right sums, by {first}"
    yield Finding("ok", "GPU", "; ".join([text, *closed]))


CHECKS: tuple[Check, ...] = (
    trial,
    usable,
    versions,
    sharing,
    visible,
    peers,
    shared_memory,
)
