import json

import pytest

import strategy as distribute
from strategy import ClusterError
from strategy.cluster_check import Facts, check_facts, read_facts
from strategy.cluster_resolver import ClusterSpec, TFConfigClusterResolver

FULL = {
    "chief": ["c:1"],
    "worker": ["w0:1", "w1:1"],
    "ps": ["p:1"],
    "evaluator": ["e:1"],
}


@pytest.fixture
def tf_config(monkeypatch):
    def set_to(value):
        text = value if isinstance(value, str) else json.dumps(value)
        monkeypatch.setenv("TF_CONFIG", text)

    monkeypatch.delenv("TF_CONFIG", raising=False)
    return set_to


def test_tf_config_is_read_on_every_access(tf_config):
    resolver = TFConfigClusterResolver()
    assert not resolver.cluster_spec()
    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer) == (None,) * 3
    assert resolver.master() == ""
    tf_config({"cluster": FULL, "task": {"type": "worker", "index": "1"}})
    assert resolver.cluster_spec().as_dict() == FULL
    assert (resolver.task_type, resolver.task_id) == ("worker", 1)
    assert resolver.environment is None
    resolver.task_id = 0
    assert resolver.task_id == 0


def test_master(tf_config):
    task = {"type": "worker", "index": 1}
    tf_config({"cluster": FULL, "task": task, "rpc_layer": "grpc"})
    resolver = TFConfigClusterResolver()
    assert resolver.master() == "grpc://w1:1"
    assert resolver.master("ps", 0) == "grpc://p:1"
    assert TFConfigClusterResolver(rpc_layer="x").master() == "x://w1:1"
    tf_config({"cluster": {"worker": ["w0:1"]}, "task": {"type": "worker", "index": 0}})
    assert resolver.master() == ""
    tf_config({"cluster": FULL, "task": task, "session_master": "m:9"})
    assert resolver.master() == "m:9"


def test_cluster_spec():
    spec = ClusterSpec({"worker": {"0": "a:1", "2": "b:1"}, "ps": ["p:1"]})
    assert spec.as_dict() == {"worker": {0: "a:1", 2: "b:1"}, "ps": ["p:1"]}
    assert (spec.jobs, spec.num_tasks("worker"), spec.num_tasks("chief")) == (
        ["worker", "ps"],
        2,
        0,
    )
    assert spec.task_indices("worker") == [0, 2]
    assert spec.task_address("worker", 2) == "b:1"
    with pytest.raises(ValueError, match="no task worker 1"):
        spec.task_address("worker", 1)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"cluster": {', "TF_CONFIG is not valid JSON: .* line 1 column 14"),
        ("[1]", "TF_CONFIG is '"),
        ('{"cluster": 5}', "TF_CONFIG cluster is 5"),
        ('{"cluster": {"worker": "a:1"}}', "TF_CONFIG cluster.worker is 'a:1'"),
        ('{"cluster": {"worker": ["a:1"]}, "task": [0]}', r"TF_CONFIG task is \[0\]"),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": {"index": "x"}}',
            "TF_CONFIG task.index is 'x'",
        ),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": {"index": -1}}',
            "TF_CONFIG task.index is -1",
        ),
    ],
)
def test_bad_tf_config_names_the_field(tf_config, text, field):
    tf_config(text)
    with pytest.raises(ClusterError, match=field) as caught:
        distribute.MultiWorkerMirroredStrategy()
    assert "rank 0" in str(caught.value)


def test_blank_tf_config_is_none_at_all(tf_config):
    tf_config(" ")
    resolver = distribute.MultiWorkerMirroredStrategy().cluster_resolver
    assert (resolver.task_type, resolver.task_id) == ("worker", 0)
    assert len(resolver.cluster_spec().as_dict()["worker"]) == 1


def test_two_workers_in_tf_config_and_no_launcher(tf_config):
    cluster = {"worker": ["a:1", "b:1"]}
    tf_config({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    with pytest.raises(ClusterError, match=r"2 task.*MPI has 1 rank.*mpirun -n 2"):
        distribute.MultiWorkerMirroredStrategy()


def facts(cluster, *tasks):
    return [Facts(ClusterSpec(cluster), job, index) for job, index in tasks]


CHIEF_AND_WORKERS = [("chief", 0), ("worker", 0), ("worker", 1)]


def test_a_cluster_that_agrees():
    assert check_facts(facts(FULL, *CHIEF_AND_WORKERS), "TF_CONFIG")
    assert check_facts(facts({"worker": ["a", "b"]}, ("worker", 0), ("worker", 1)), "X")
    assert not check_facts([Facts(ClusterSpec())] * 3, "TF_CONFIG")


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (
            facts(FULL, ("chief", 0), ("worker", 0)),
            "cluster has 3 .* MPI has 2 rank",
        ),
        (
            facts({"worker": ["a", "b"]}, ("worker", 1), ("worker", 1)),
            "task.index: worker 1 is claimed by ranks 0, 1",
        ),
        (
            facts({"worker": ["a", "b"]}, ("worker", 0), ("worker", None)),
            "task.index is missing on rank 1",
        ),
        (
            facts({"worker": ["a", "b"]}, (None, 0), ("worker", 1)),
            "task.type is missing on rank 0",
        ),
        (
            facts({"worker": ["a", "b"]}, ("worker", 0), ("worker", 2)),
            "task.index: rank 1 is worker 2; the cluster has worker 0, worker 1",
        ),
        (
            facts({"worker": ["a", "b"]}, ("worker", 0), ("boss", 0)),
            "task.type: rank 1 is boss 0",
        ),
        (
            facts({"worker": ["a", "b"]}, ("worker", 1), ("worker", 0)),
            "task.index: rank 0 is worker 1; wanted worker 0",
        ),
        (
            [*facts({"worker": ["a", "b"]}, ("worker", 0)), Facts(ClusterSpec())],
            "a cluster on rank 0 and none on rank 1",
        ),
        (
            facts({"worker": ["a", "b"]}, ("worker", 0))
            + facts({"worker": ["a", "c"]}, ("worker", 1)),
            "cluster differs: rank 0 has .*'b'.* rank 1 has .*'c'",
        ),
        (
            [Facts(ClusterSpec()), Facts(ClusterSpec(), problem="TF_CONFIG is broken")],
            r"TF_CONFIG is broken \(rank 1\)",
        ),
    ],
)
def test_a_cluster_that_disagrees(told, text):
    with pytest.raises(ClusterError, match=text):
        check_facts(told, "TF_CONFIG")


def test_a_wrong_resolver_is_a_fact():
    assert "wanted a resolver" in read_facts("worker:0").problem
    with pytest.raises(ValueError, match="cluster_resolver is 5"):
        distribute.MultiWorkerMirroredStrategy(cluster_resolver=5)


def test_wrong_options():
    with pytest.raises(ValueError, match="communication_options is 'RING'"):
        distribute.MultiWorkerMirroredStrategy(communication_options="RING")
