"""TF_CONFIG against MPI, with another TF_CONFIG on every rank."""

import json

import pytest

import strategy as distribute
from strategy import ClusterError
from strategy.cluster_command import main


@pytest.fixture
def tf_config(monkeypatch, comm):
    """Return a function that sets TF_CONFIG here; None leaves it unset."""
    monkeypatch.delenv("TF_CONFIG", raising=False)

    def set_to(value):
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            monkeypatch.setenv("TF_CONFIG", text)

    return set_to


def worker(workers, index):
    cluster = {"worker": [f"host{i}:1" for i in range(workers)]}
    return {"cluster": cluster, "task": {"type": "worker", "index": index}}


def error(comm):
    """Return the text of the error, after checking that all ranks have the same."""
    with pytest.raises(ClusterError) as caught:
        distribute.MultiWorkerMirroredStrategy()
    texts = set(comm.all_gather_object(str(caught.value)))
    assert len(texts) == 1
    return texts.pop()


def test_without_tf_config_the_cluster_is_mpis(tf_config, comm):
    tf_config(None)
    resolver = distribute.MultiWorkerMirroredStrategy().cluster_resolver
    assert (resolver.task_type, resolver.task_id) == ("worker", comm.rank)
    spec = resolver.cluster_spec()
    assert spec.num_tasks("worker") == comm.size
    host = comm.topology.hosts[comm.topology.host_of[comm.rank]]
    port = 8888 + comm.topology.local_rank
    assert spec.task_address("worker", comm.rank) == f"{host}:{port}"


def test_what_the_command_prints_is_what_agrees(tf_config, comm, capsys):
    tf_config(None)
    jobs = f"chief=1,worker={comm.size - 1}"
    main(["--tf-config", "--jobs", jobs])
    printed = comm.broadcast_object(capsys.readouterr().out)
    tf_config(printed.splitlines()[comm.rank])
    resolver = distribute.MultiWorkerMirroredStrategy().cluster_resolver
    task = ("worker", comm.rank - 1) if comm.rank else ("chief", 0)
    assert (resolver.task_type, resolver.task_id) == task


def test_tf_config_that_agrees(tf_config, comm):
    tf_config(worker(comm.size, comm.rank))
    strategy = distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    assert (resolver.task_type, resolver.task_id) == ("worker", comm.rank)
    assert resolver.cluster_spec().task_address("worker", 0) == "host0:1"
    assert strategy.reduce("SUM", 1.0, axis=None) == comm.size


@pytest.mark.ranks(2, 3, 4)
def test_the_chief_is_rank_0_and_worker_0_is_rank_1(tf_config, comm, own_device):
    cluster = {"worker": [f"w{i}" for i in range(comm.size - 1)], "chief": ["c"]}
    job, index = ("worker", comm.rank - 1) if comm.rank else ("chief", 0)
    tf_config({"cluster": cluster, "task": {"type": job, "index": str(index)}})
    strategy = distribute.MultiWorkerMirroredStrategy()
    assert strategy.extended.should_checkpoint == (comm.rank == 0)
    devices = (f"/job:{job}/replica:0/task:{index}/device:{own_device}",)
    assert strategy.extended.worker_devices == devices


def test_another_number_of_workers(tf_config, comm):
    tf_config(worker(comm.size + 1, comm.rank))
    text = error(comm)
    assert f"cluster has {comm.size + 1} task(s)" in text
    assert f"MPI has {comm.size} rank(s)" in text


@pytest.mark.ranks(2, 3, 4)
def test_one_index_twice(tf_config, comm):
    tf_config(worker(comm.size, max(comm.rank, 1)))
    assert "task.index: worker 1 is claimed by ranks 0, 1" in error(comm)


@pytest.mark.ranks(2, 3, 4)
def test_invalid_json_on_one_rank_is_an_error_on_all(tf_config, comm):
    good = json.dumps(worker(comm.size, comm.rank))
    tf_config(good[:-1] if comm.rank == 1 else good)
    text = error(comm)
    assert "TF_CONFIG is not valid JSON" in text
    assert "(rank 1)" in text


@pytest.mark.ranks(2, 3, 4)
def test_an_index_that_is_missing_on_one_rank(tf_config, comm):
    config = worker(comm.size, comm.rank)
    if comm.rank == comm.size - 1:
        del config["task"]["index"]
    tf_config(config)
    assert f"task.index is missing on rank {comm.size - 1}" in error(comm)


@pytest.mark.ranks(2, 3, 4)
def test_tf_config_on_some_ranks_only(tf_config, comm):
    tf_config(None if comm.rank == 1 else worker(comm.size, comm.rank))
    assert "none on rank 1" in error(comm)


@pytest.mark.ranks(2, 3, 4)
def test_clusters_that_differ(tf_config, comm):
    config = worker(comm.size, comm.rank)
    if comm.rank == 1:
        config["cluster"]["worker"][0] = "elsewhere:1"
    tf_config(config)
    text = error(comm)
    assert "rank 0 has" in text
    assert "elsewhere:1" in text


@pytest.mark.ranks(2, 3, 4)
def test_after_an_error_the_next_strategy_works(tf_config, comm):
    tf_config("{")
    error(comm)
    tf_config(worker(comm.size, comm.rank))
    assert distribute.MultiWorkerMirroredStrategy().num_replicas_in_sync == comm.size
