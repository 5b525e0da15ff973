"""What the doctor concludes from the GPUs of a job, and what it reads of them."""

from dataclasses import replace

import pytest
from harness.jobs import change, job

from collectives.doctor import gpu_checks, gpus
from collectives.doctor.findings import Finding, Job
from collectives.doctor.gpu_trial import Trial
from collectives.doctor.gpus import Device, GpuFacts
from collectives.doctor.memory import MemoryFacts
from collectives.doctor.report import render
from collectives.topology import Topology

ONE, OTHER = (Device("H200", f"GPU-{n}", f"0000:0{n}:00.0", 139.8) for n in (1, 2))
FACTS = GpuFacts(
    driver="580.65.06",
    cuda_driver="13.0",
    cuda="12.9",
    cupy="14.2.0",
    nccl="2.27.7",
    devices=(ONE, OTHER),
)


def gpu_job(ranks: int, facts: GpuFacts = FACTS, **changes: object) -> Job:
    """Return a job whose ranks have these GPUs, each with its place on the host."""
    found = job(ranks, gpu=facts, **changes)
    for rank in range(ranks):
        place = Topology(rank, ("node",), (0,) * ranks, 8, found.processes[0].mpi)
        found = change(found, rank, topology=place)
    return found


def findings(of: Job) -> list[Finding]:
    return [finding for check in gpu_checks.CHECKS for finding in check(of)]


def test_no_gpu_is_one_word_in_the_header_and_no_finding():
    assert findings(job(2)) == []
    assert "GPU       none\n" in render(job(2), [Finding("ok", "launch", "fine")])


def test_a_gpu_for_each_rank():
    (finding,) = findings(gpu_job(2))
    assert (finding.level, finding.what) == (
        "ok",
        "node: each rank can have a GPU of its own",
    )
    text = render(gpu_job(2), [finding])
    assert "2 x H200, driver 580.65.06 (CUDA 13.0), CuPy 14.2.0 (CUDA 12.9)" in text
    assert text.count("0: H200, 139.8 GiB, GPU-1 at 0000:01:00.0") == 1


def test_more_ranks_than_gpus_share_them():
    (finding,) = findings(gpu_job(4))
    assert finding.level == "note"
    assert "up to 2 ranks on one GPU: NCCL refuses that" in finding.what


def test_a_gpu_that_lets_in_one_process():
    exclusive = replace(ONE, compute_mode="exclusive process")
    (finding,) = findings(gpu_job(2, replace(FACTS, devices=(exclusive,))))
    assert finding.level == "error"
    assert "nvidia-smi -c DEFAULT" in finding.fix


def test_a_rank_without_a_gpu():
    hidden = replace(FACTS, devices=(), visible="", problem="'' hides every GPU")
    found = findings(change(gpu_job(2), 1, gpu=hidden))
    usable, sharing, visible = (one.what for one in found)
    assert "rank 1: '' hides every GPU" in usable
    assert "1 rank of 2 without a GPU" in sharing
    assert "CUDA_VISIBLE_DEVICES differs: '', unset" in visible


def test_a_cupy_that_is_too_new_for_the_driver():
    facts = replace(
        FACTS, cuda="13.0", cuda_driver="12.4", devices=(), problem="insufficient"
    )
    assert "ringfold[cuda12]" in findings(job(1, gpu=facts))[0].fix


def test_a_driver_without_cupy():
    facts = GpuFacts(driver="580.65.06", problem="CuPy is not installed")
    (finding,) = findings(job(1, gpu=facts))
    assert (finding.level, "ringfold[cuda13]" in finding.fix) == ("warning", True)


def test_no_nccl_and_versions_that_differ():
    lacking = change(gpu_job(2), 1, gpu=replace(FACTS, nccl=""))
    texts = [finding.what for finding in findings(lacking)]
    assert "nccl differs: none, 2.27.7" in texts
    assert any("finds no NCCL" in text for text in texts)


def test_gpus_that_cannot_reach_each_other():
    texts = [one.what for one in findings(gpu_job(2, replace(FACTS, apart=((0, 1),))))]
    assert any("no peer access between GPUs 0-1" in text for text in texts)


def test_little_shared_memory():
    small = gpu_job(2, memory=MemoryFacts(64 << 20, 64 << 20, "memfd"))
    assert any("--shm-size=1g" in finding.fix for finding in findings(small))


def test_a_trial_tells_the_ways_and_what_the_mpi_may_be_given():
    ways = {"nccl": "", "cuda_ipc": "the ranks are on several hosts"}
    tried = replace(gpu_job(2), gpus=Trial(ways, "no: it says so"))
    finding = findings(tried)[0]
    assert finding.what.endswith(
        "by nccl; not cuda_ipc (the ranks are on several hosts)"
    )
    assert "CUDA-aware: no: it says so" in render(tried, [finding])
    failed = replace(tried, gpus=Trial({}, "unknown", "it gave wrong sums"))
    assert findings(failed)[0] == Finding("error", "GPU", "it gave wrong sums")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue", "550.54.15"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Rel",
            "570.86.10",
        ),
        ("something else", "of an unknown version"),
    ],
)
def test_the_driver_says_its_version(tmp_path, monkeypatch, text, version):
    path = tmp_path / "version"
    path.write_text(text)
    monkeypatch.setattr(gpus, "DRIVER", path)
    assert gpus._driver() == version


def test_versions_of_nccl_and_cuda_are_read_from_numbers():
    assert gpus._cuda(12090) == "12.9"
    assert gpus._cuda(0) == ""
