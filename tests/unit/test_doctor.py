"""What the doctor concludes from facts, and how it reads some of them."""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.jobs import INTEL, MPICH, OPEN_MPI, change, job

from collectives.doctor import advice, examine, facts, hardware, software
from collectives.doctor.facts import (
    CoreFacts,
    ThreadFacts,
    _quota,
    _threads,
    versions,
)
from collectives.doctor.findings import Check, Finding, Job, ranges
from collectives.doctor.memory import MemoryFacts, leftovers
from collectives.doctor.report import WIDTH, render
from collectives.launcher import LaunchFacts
from collectives.topology import MPIFacts

MIB = 1 << 20


def only(check: Check, of: Job) -> Finding:
    """Return the one finding of a check."""
    (finding,) = check(of)
    return finding


def test_a_healthy_job_gives_no_complaint() -> None:
    findings = examine(job(4))
    assert {finding.level for finding in findings} == {"ok"}
    assert "no complaints" in render(job(4), findings)


def test_launch_error_is_the_finding() -> None:
    broken = job(1, mpi=None, problem="the launcher started 4 ranks, MPI sees 1")
    launch, memory = examine(broken)
    assert (launch.level, launch.what) == ("error", broken.processes[0].problem)
    # The rest is about all ranks of a host, and nobody knows where the others are.
    assert (memory.level, memory.check) == ("ok", "memory")


def test_no_launcher_says_how_to_check_a_job() -> None:
    alone = job(1, launch=LaunchFacts(), mpirun_here="/my env/bin/mpirun")
    finding = only(software.launch, alone)
    assert finding.level == "note"
    assert "'/my env/bin/mpirun' -n 2 ringfold doctor" in finding.fix


def test_launcher_and_mpi_with_several_ranks_each() -> None:
    nested = job(2, launch=LaunchFacts("MPICH's mpirun", 4, 0, 4))
    finding = only(software.launch, nested)
    assert finding.level == "warning"
    assert "says 4, MPI says 2" in finding.what


def test_related_launcher_is_only_a_note() -> None:
    related = job(2, launch=LaunchFacts("Intel MPI's mpirun", 2, 0, 2))
    agree, note = software.launch(related)
    assert (agree.level, note.level) == ("ok", "note")
    assert "Intel MPI's mpirun started a program of MPICH" in note.what


def test_a_launcher_for_every_mpi_belongs_to_none() -> None:
    assert only(software.launch, job(2, launch=LaunchFacts("Flux", 2, 0))).level == "ok"


def test_foreign_mpirun_on_path() -> None:
    alone = job(1, launch=LaunchFacts(), mpirun_on_path="/usr/bin/mpirun")
    finding = only(software.program, alone)
    assert "/usr/bin/mpirun" in finding.what
    assert "/env/bin/mpirun" in finding.fix
    missing = job(1, launch=LaunchFacts(), mpirun_on_path="")
    assert "is missing" in only(software.program, missing).what
    # Under a launcher that agreed with MPI there is nothing to warn about.
    assert not list(software.program(job(2, mpirun_on_path="/usr/bin/mpirun")))


def test_versions_that_differ_name_their_ranks() -> None:
    mixed = change(
        job(4), 2, versions={"Ringfold": "0.1.0", "Python": "3.11.7", "NumPy": "1.26.4"}
    )
    python, numpy = software.versions(mixed)
    assert (python.level, numpy.level) == ("warning", "error")
    assert numpy.what == "NumPy differs: 2.0.0 on ranks 0-1,3; 1.26.4 on rank 2"


def test_mpi_versions_that_differ_are_an_error() -> None:
    mixed = change(job(2), 1, mpi=replace(MPICH, version="4.3.0"))
    assert only(software.versions, mixed).level == "error"


def test_variables_that_differ() -> None:
    mixed = change(job(2), 1, environment={"RINGFOLD_TIMEOUT_S": "5"})
    threads, timeout = software.environment(mixed)
    assert threads.level == "warning"
    assert threads.what == "OMP_NUM_THREADS differs: 1 on rank 0; unset on rank 1"
    assert timeout.level == "error"
    assert "-genvlist RINGFOLD_TIMEOUT_S" in timeout.fix
    assert "-x" in next(software.environment(replace_mpi(mixed, OPEN_MPI))).fix


def test_wrong_options_name_their_ranks() -> None:
    wrong = change(job(3), 1, bad_option="RINGFOLD_TIMEOUT_S is 'x'")
    error = next(software.environment(wrong))
    assert error.level == "error"
    assert error.what == "RINGFOLD_TIMEOUT_S is 'x' (on rank 1)"
    alone = job(1, bad_option="RINGFOLD_TIMEOUT_S is 'x'")
    assert only(software.environment, alone).what == "RINGFOLD_TIMEOUT_S is 'x'"


def test_variables_that_only_mpirun_reads_may_differ() -> None:
    meant = dict.fromkeys(advice.READ_BY_MPIRUN, "1")
    mixed = change(job(2, environment={}), 1, environment=meant)
    assert only(software.environment, mixed).level == "ok"


def replace_mpi(of: Job, mpi: MPIFacts) -> Job:
    return Job(tuple(replace(process, mpi=mpi) for process in of.processes))


def test_low_thread_level() -> None:
    assert not list(software.thread_level(job()))
    low = job(mpi=replace(MPICH, thread_level="single"))
    finding = only(software.thread_level, low)
    assert finding.level == "warning"
    assert "single" in finding.what


def test_no_mpi_is_fine_for_one_process() -> None:
    findings = examine(job(1, mpi=None, mpirun_here="", mpirun_on_path=""))
    assert {finding.level for finding in findings} == {"ok", "note"}


@pytest.mark.parametrize(
    ("mpi", "changes", "words"),
    [
        (OPEN_MPI, {"is_root": True}, "AS_ROOT_CONFIRM=1"),
        (OPEN_MPI, {"launch": LaunchFacts()}, "--oversubscribe"),
        (OPEN_MPI, {"launch": LaunchFacts()}, "OMPI_MCA_osc"),
        (INTEL, {"mpirun_on_path": ""}, "export PATH=/env/bin:$PATH"),
    ],
)
def test_peculiarities(mpi: MPIFacts, changes: dict[str, Any], words: str) -> None:
    findings = list(software.peculiarities(job(1, mpi, **changes)))
    assert any(words in finding.fix for finding in findings)
    assert {finding.level for finding in findings} == {"note"}


def test_peculiarities_only_where_they_matter() -> None:
    meant = dict.fromkeys(advice.READ_BY_MPIRUN, "1")
    assert not list(
        software.peculiarities(job(2, OPEN_MPI, is_root=True, environment=meant))
    )
    assert not list(software.peculiarities(job(2, OPEN_MPI)))
    assert not list(software.peculiarities(job(1, INTEL)))


def test_wrong_trial_is_an_error() -> None:
    finding = only(software.trial, replace(job(), trial="wrong sums on ranks [1]"))
    assert finding.level == "error"


def masks(*usable: tuple[int, ...], offered: int = 8) -> Job:
    """Return a job whose ranks are bound to these cores."""
    bound = job(len(usable))
    for rank, mask in enumerate(usable):
        bound = change(bound, rank, cores=CoreFacts(mask, tuple(range(offered))))
    return bound


@pytest.mark.parametrize(
    ("bound", "level", "words"),
    [
        (masks((0, 1), (0, 1), offered=2), "ok", "2 ranks on 2 cores, not bound"),
        (masks((0,), (1,), offered=2), "ok", "2 ranks on 2 cores, bound"),
        (masks((0, 1), (0, 1), (0, 1), offered=2), "warning", "3 ranks share 2 cores"),
        (masks((0,), (0,), offered=2), "warning", "2 ranks are bound to core 0"),
        (masks((0, 1), (0, 1), (0, 1)), "warning", "3 ranks are bound to cores 0-1"),
        (masks((0,), (1,)), "note", "bound to 2 of 8 cores"),
        (masks((3,), offered=1), "note", "1 rank bound to 1 of 2 cores"),
    ],
)
def test_cores(bound: Job, level: str, words: str) -> None:
    finding = only(hardware.cores, bound)
    assert finding.level == level
    assert words in finding.what


def test_unbinding_depends_on_the_mpi() -> None:
    crowded = masks((0,), (0,))
    assert "-bind-to none" in only(hardware.cores, crowded).fix
    assert "I_MPI_PIN" in only(hardware.cores, replace_mpi(crowded, INTEL)).fix


def test_container_limit() -> None:
    limited = job(4, cores=CoreFacts(tuple(range(8)), tuple(range(8)), quota=1.5))
    finding = only(hardware.cores, limited)
    assert finding.level == "warning"
    assert "1.5 cores' worth" in finding.what


def test_every_host_is_judged_by_its_own_ranks() -> None:
    two = change(job(2), 1, host="other", host_index=1)
    assert two.hosts() == {"node": [0], "other": [1]}
    assert only(hardware.cores, two).what == "node other: 1 rank on 8 cores"
    two = change(two, 1, cores=CoreFacts((0,), (0,)))
    assert [finding.what for finding in hardware.cores(two)] == [
        "node: 1 rank on 8 cores",
        "other: 1 rank on 1 core",
    ]
    twins = change(job(2), 1, host_index=1)
    assert twins.hosts() == {"node#0": [0], "node#1": [1]}


def test_too_many_blas_threads() -> None:
    eager = job(4, threads=ThreadFacts(8, "the default"))
    finding = only(hardware.blas, eager)
    assert finding.level == "warning"
    assert "32 threads on 8 cores" in finding.what
    assert finding.fix == "export OMP_NUM_THREADS=2"
    # The variable that is set is the one to change: it is the stronger one.
    named = job(4, threads=ThreadFacts(8, "OPENBLAS_NUM_THREADS=8"))
    assert only(hardware.blas, named).fix == "export OPENBLAS_NUM_THREADS=2"
    # One thread each is the least there is: too many ranks are another finding.
    assert only(hardware.blas, job(32)).level == "ok"


def test_blas_threads_under_a_container_limit() -> None:
    cores = CoreFacts(tuple(range(8)), tuple(range(8)), quota=2)
    limited = job(1, cores=cores, threads=ThreadFacts(8, "the default"))
    assert "8 threads on 2 cores" in only(hardware.blas, limited).what


def test_little_shared_memory() -> None:
    small = MemoryFacts(64 * MIB, 9 * MIB, "memfd")
    finding = only(hardware.memory, job(2, memory=small))
    assert finding.level == "warning"
    assert "9 MiB of /dev/shm free" in finding.what
    assert "about 10 MiB for 2 ranks" in finding.what
    assert only(hardware.memory, job(2, OPEN_MPI, memory=small)).level == "ok"


def test_no_anonymous_memory() -> None:
    fallback = MemoryFacts(1 << 30, 1 << 30, "/dev/shm")
    finding = only(hardware.memory, job(memory=fallback))
    assert finding.level == "warning"
    assert "/dev/shm" in finding.what


def test_leftovers_are_listed_and_counted() -> None:
    files = {f"sm_segment.vm.{number}": MIB for number in range(5)}
    memory = MemoryFacts(1 << 30, 1 << 30, "memfd", files)
    finding = only(hardware.leftovers, change(job(2), 0, memory=memory))
    assert finding.level == "note"
    assert "5 files of Open MPI" in finding.what
    assert "(5.0 MiB)" in finding.what
    assert finding.fix.startswith("rm /dev/shm/sm_segment.vm.0 ")
    assert "2 more" in finding.fix


def test_ranges() -> None:
    assert ranges([5, 0, 2, 1]) == "0-2,5"
    assert ranges([7]) == "7"
    assert ranges([]) == ""


def test_report_names_what_matters() -> None:
    older = {"Ringfold": "0.1.0", "Python": "3.11.7", "NumPy": "1.26.4"}
    mixed = change(job(4), 2, versions=older)
    lines = render(mixed, examine(mixed)).splitlines()
    assert lines[0].startswith("Ringfold 0.1.0")
    assert "MPICH 5.0.2, thread level multiple" in lines[1]
    assert "MPICH's mpirun (/env/bin/hydra_pmi_proxy), 4 ranks" in lines[2]
    assert lines[3].endswith("node: ranks 0-3 on cores 0-7")
    assert lines[-1] == "1 error, 1 warning"


def test_report_wraps_but_never_inside_a_command() -> None:
    command = "/a very/" + "long" * 40
    finding = Finding("error", "launch", "word " * 60, command.replace(" ", "-"))
    lines = render(job(), [finding]).splitlines()
    assert all(len(line) <= WIDTH for line in lines if "longlong" not in line)
    assert any(finding.fix in line for line in lines)


def test_report_of_many_hosts_stays_short() -> None:
    many = job(40)
    for rank in range(40):
        many = change(many, rank, host=f"node{rank}", host_index=rank)
    text = render(many, examine(many))
    assert "... and 24 more hosts" in text
    assert len(text.splitlines()) < 40


def test_thread_count_by_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collectives.doctor.facts._thread_pools", lambda: ())
    assert _threads({}, 8) == ThreadFacts(8, "the default")
    assert _threads({"OMP_NUM_THREADS": "3"}, 8) == ThreadFacts(3, "OMP_NUM_THREADS=3")
    both = {"OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "2"}
    assert _threads(both, 8) == ThreadFacts(2, "OPENBLAS_NUM_THREADS=2")
    monkeypatch.setattr(
        "collectives.doctor.facts._thread_pools", lambda: [{"num_threads": 4}]
    )
    assert _threads({"OMP_NUM_THREADS": "3"}, 8).count == 4


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
    ],
)
def test_container_quota(
    tmp_path: Path, files: dict[str, str], quota: float | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert _quota(tmp_path) == quota


@pytest.fixture
def shm(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with one file of each kind; the last is mapped by us."""
    import mmap

    for name in ("sm_segment.dead", "mpich_shm_live", "notes.txt"):
        (tmp_path / name).write_bytes(bytes(4096))
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / "sm_segment.young").write_bytes(bytes(4096))
    with (
        open(tmp_path / "mpich_shm_live", "r+b") as file,
        mmap.mmap(file.fileno(), 4096),
    ):
        yield tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what is mapped")
def test_leftovers_are_old_known_and_unused(shm: Path) -> None:
    assert set(leftovers(shm)) == {"sm_segment.dead"}
    either = {"sm_segment.dead", "sm_segment.young"}
    assert set(leftovers(shm, older_than_s=-1)) == either


def test_cupy_is_looked_up_and_not_imported() -> None:
    assert set(versions()) == {"Ringfold", "Python", "NumPy", "mpi4py", "CuPy"}
    assert "cupy" not in sys.modules


def test_the_launchers_own_folder_is_no_difference():
    far = {
        "PRTE_PREFIX": "/opt/mpi",
        "LD_LIBRARY_PATH": "/opt/mpi/lib:/opt/mpi/lib:",
        "PYTHONUNBUFFERED": "1",
    }
    assert facts._environment(far) == facts._environment({}) == {}
    near = {"LD_LIBRARY_PATH": "/mine:/opt/mpi/lib"}
    assert facts._environment({**far, "LD_LIBRARY_PATH": "/opt/mpi/lib:/mine"}) == {
        "LD_LIBRARY_PATH": "/mine"
    }
    assert facts._environment(near) == near
