"""The doctor on ranks with pretended devices."""

import pytest

from collectives.doctor import examine, survey
from collectives.doctor.report import render

pytestmark = [pytest.mark.gpus, pytest.mark.one_host]


@pytest.mark.ranks(1, 2, 3)
def test_device_arrays_are_tried_and_the_ways_told(comm):
    job, rank = survey()
    assert rank == comm.rank
    assert job.gpus is not None and job.gpus.problem == ""
    texts = [finding.what for finding in examine(job) if finding.check == "GPU"]
    assert texts[0].startswith(
        "a trial all_reduce of device arrays gave the right sums"
    )
    assert "says that it is not" in job.gpus.cuda_aware
    text = render(job, examine(job))
    assert "x Test double" in text and "CUDA-aware: no: " in text


@pytest.mark.ranks(2)
def test_wrong_sums_are_an_error(comm, monkeypatch):
    right = type(comm).all_reduce

    def wrong(self, x, *arguments, **options):
        total = right(self, x, *arguments, **options)
        if hasattr(x, "get") and self.rank == 1:
            total += 1
        return total

    monkeypatch.setattr(type(comm), "all_reduce", wrong)
    job, _ = survey()
    assert job.gpus.problem == "a trial all_reduce of device arrays gave wrong sums"
    assert "error" in {f.level for f in examine(job) if f.check == "GPU"}
