"""Resolvers and what follows from a cluster, in one process."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategy as distribute
from strategy import ClusterError, multi_worker_util
from strategy.cluster_command import main
from strategy.cluster_resolver import (
    ClusterSpec,
    KubernetesClusterResolver,
    MPIClusterResolver,
    SimpleClusterResolver,
    SlurmClusterResolver,
    UnionResolver,
)
from strategy.cluster_resolver.hostlist import expand_hostlist, expand_tasks_per_node

FULL = ClusterSpec(
    {"chief": ["c:1"], "worker": ["w0:1", "w1:1"], "ps": ["p:1"], "evaluator": ["e:1"]}
)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1,n2", "n1 n2"),
        ("node[1-3]", "node1 node2 node3"),
        ("n[01-03,7],m", "n01 n02 n03 n7 m"),
        ("t[9-11]", "t9 t10 t11"),
        ("t[009-011]x", "t009x t010x t011x"),
        ("r[1-2]n[1,3]", "r1n1 r1n3 r2n1 r2n3"),
        ("alpha,beta,gamma", "alpha beta gamma"),
        ("a-b.c_d", "a-b.c_d"),
    ],
)
def test_host_lists(text, hosts):
    assert expand_hostlist(text) == hosts.split()


@pytest.mark.parametrize(
    "text", ["n[1-2", "n1]", "n[[1]]", "", "a,,b", "n[]", "n[2-1]", "n[a-b]", "n[1,]"]
)
def test_host_lists_that_cannot_be_read(text):
    with pytest.raises(ValueError, match="cannot read"):
        expand_hostlist(text)


@given(st.lists(st.integers(0, 12000), min_size=1, max_size=20), st.integers(1, 5))
def test_what_slurm_would_write_is_read_back(numbers, width):
    written = f"n[{','.join(f'{number:0{width}}' for number in numbers)}]"
    assert expand_hostlist(written) == [f"n{number:0{width}}" for number in numbers]


def test_tasks_per_node():
    assert expand_tasks_per_node("2(x3),1") == [2, 2, 2, 1]
    assert expand_tasks_per_node("3,2(x2)") == [3, 2, 2]
    for text in ("x", "", "2(x)", "2(3)", "1,"):
        with pytest.raises(ValueError, match="cannot read"):
            expand_tasks_per_node(text)


@pytest.fixture
def slurm(monkeypatch):
    """Return a function that sets the variables of a step; None unsets one."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    def step(**changes):
        variables = {
            "SLURM_PROCID": "3",
            "SLURM_STEP_NUM_TASKS": "5",
            "SLURM_STEP_NODELIST": "t02n[13,41,43,44]",
            "SLURM_STEP_TASKS_PER_NODE": "2,1(x3)",
            **changes,
        }
        for name, value in variables.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)

    return step


def test_slurm(slurm, monkeypatch):
    slurm(CUDA_VISIBLE_DEVICES="GPU-aa, GPU-bb")
    resolver = SlurmClusterResolver({"ps": 1, "worker": 4}, port_base=9000)
    assert resolver.cluster_spec().as_dict() == {
        "ps": ["t02n13:9000"],
        "worker": ["t02n13:9001", "t02n41:9000", "t02n43:9000", "t02n44:9000"],
    }
    assert (resolver.task_type, resolver.task_id) == ("worker", 2)
    assert resolver.master() == "grpc://t02n43:9000"
    assert resolver.num_accelerators() == {"GPU": 1}
    # The devices keep the names that they had; the first task of a host has the first.
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-aa"
    slurm(CUDA_VISIBLE_DEVICES="GPU-aa, GPU-bb", SLURM_PROCID="1")
    SlurmClusterResolver().cluster_spec()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-bb"


def test_slurm_keeps_the_steps_order_of_hosts(slurm):
    slurm(
        SLURM_STEP_NODELIST="t[9-10]",
        SLURM_STEP_TASKS_PER_NODE="2(x2)",
        SLURM_STEP_NUM_TASKS="4",
    )
    addresses = SlurmClusterResolver().cluster_spec().as_dict()["worker"]
    assert addresses == ["t9:8888", "t9:8889", "t10:8888", "t10:8889"]


def test_slurm_without_gpus_leaves_the_devices_alone(slurm):
    slurm(CUDA_VISIBLE_DEVICES="")
    resolver = SlurmClusterResolver()
    assert resolver.cluster_spec().num_tasks("worker") == 5
    assert resolver.num_accelerators() == {"GPU": 0}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_slurm_that_does_not_fit(slurm):
    slurm()
    with pytest.raises(RuntimeError, match="2 tasks, the Slurm step has 5"):
        SlurmClusterResolver({"ps": 1, "worker": 1})
    with pytest.raises(RuntimeError, match=r"2 tasks of 1 GPU.*it has 1"):
        SlurmClusterResolver(gpus_per_node=1, gpus_per_task=1)
    slurm(SLURM_STEP_TASKS_PER_NODE="5")
    with pytest.raises(RuntimeError, match="4 hosts"):
        SlurmClusterResolver()
    slurm(SLURM_PROCID=None)
    with pytest.raises(RuntimeError, match="SLURM_PROCID is not set"):
        SlurmClusterResolver()


def test_simple():
    resolver = SimpleClusterResolver(FULL, task_type="ps", task_id=0, rpc_layer="grpc")
    assert resolver.master() == "grpc://"
    assert resolver.master("worker", 1) == "grpc://w1:1"
    assert resolver.num_accelerators() == {}
    assert resolver.environment == ""
    with pytest.raises(TypeError, match="cluster_spec is"):
        SimpleClusterResolver({"worker": ["a:1"]})
    with pytest.raises(TypeError, match="master is 5"):
        SimpleClusterResolver(FULL, master=5)


def simple(**jobs):
    return SimpleClusterResolver(ClusterSpec(jobs))


def test_union():
    union = UnionResolver(simple(worker=["a:1"]), simple(worker=["b:1"], ps=["p:1"]))
    joined = {"worker": ["a:1", "b:1"], "ps": ["p:1"]}
    assert union.cluster_spec().as_dict() == joined
    assert union.master("worker", 1) == "b:1"
    mixed = UnionResolver(simple(worker=["a:1"]), simple(worker={"3": "b:1"}))
    assert mixed.cluster_spec().as_dict() == {"worker": {0: "a:1", 3: "b:1"}}
    with pytest.raises(KeyError, match=r"\[1\]"):
        UnionResolver(
            simple(worker={"1": "a:1"}), simple(worker={"1": "b:1"})
        ).cluster_spec()
    first = SimpleClusterResolver(FULL, "m:1", "ps", 0, "lab", {"GPU": 2}, "grpc")
    union = UnionResolver(first, simple(), task_id=7)
    assert (union.task_type, union.task_id, union.environment) == ("ps", 7, "lab")
    assert (union.master(), union.num_accelerators()) == ("grpc://m:1", {"GPU": 2})
    for wrong, error, text in [
        (lambda: UnionResolver(), ValueError, "no resolver"),
        (lambda: UnionResolver("a:1"), TypeError, "'a:1'"),
        (lambda: UnionResolver(simple(), master="x"), ValueError, "argument master"),
    ]:
        with pytest.raises(error, match=text):
            wrong()


def pod(name, phase="Running"):
    status = SimpleNamespace(phase=phase, host_ip=f"10.0.0.{name[-1]}")
    return SimpleNamespace(metadata=SimpleNamespace(name=name), status=status)


class Client:
    def __init__(self, **pods):
        self.pods = pods

    def list_pod_for_all_namespaces(self, label_selector):
        return SimpleNamespace(items=self.pods[label_selector])


def test_kubernetes():
    client = Client(a=[pod("x2"), pod("x1")], b=[pod("y3")], c=[pod("z4", "Pending")])
    resolver = KubernetesClusterResolver({"worker": ["a", "b"]}, override_client=client)
    addresses = [f"10.0.0.{number}:8470" for number in (1, 2, 3)]
    assert resolver.cluster_spec().as_dict() == {"worker": addresses}
    assert resolver.master() == ""
    resolver.task_type, resolver.task_id = "worker", 1
    assert resolver.master() == "grpc://10.0.0.2:8470"
    waiting = KubernetesClusterResolver({"ps": ["c"]}, override_client=client)
    with pytest.raises(RuntimeError, match="pod z4 is Pending"):
        waiting.cluster_spec()


def test_kubernetes_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(ImportError, match="pip install kubernetes"):
        KubernetesClusterResolver()


def test_mpi_of_one():
    resolver = MPIClusterResolver(jobs={"chief": 1}, port_base=7000)
    assert (resolver.task_type, resolver.task_id) == ("chief", 0)
    assert resolver.cluster_spec().task_address("chief", 0).endswith(":7000")
    with pytest.raises(ClusterError, match=r"have 3 tasks, MPI has 1 rank"):
        MPIClusterResolver(jobs={"chief": 1, "worker": 2})


def test_the_command(capsys, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert main(["--tf-config", "--jobs", "chief=1"]) == 0
    config = json.loads(capsys.readouterr().out)
    assert config["task"] == {"type": "chief", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    strategy = distribute.MultiWorkerMirroredStrategy()
    assert strategy.cluster_resolver.task_type == "chief"
    assert main([]) == 0
    assert "   0  worker 0      " in capsys.readouterr().out
    assert main(["--jobs", "chief"]) == 2
    assert "'chief'; wanted JOB=N" in capsys.readouterr().err
    assert main(["--help"]) == 0


def test_tf_config_of_several_hosts_and_no_mpirun(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import json, os\n"
        "cluster = {'worker': ['a:1', 'a:2', 'b:1']}\n"
        "task = {'type': 'worker', 'index': 0}\n"
        "os.environ['TF_CONFIG'] = json.dumps({'cluster': cluster, 'task': task})\n"
        "import strategy\n"
        "strategy.MultiWorkerMirroredStrategy()\n"
    )
    ended = subprocess.run(
        [sys.executable, script, "--lr", "2"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert f"mpirun -n 3 python {script} --lr 2 (with -hosts a,b; " in ended.stderr


def test_places_in_the_cluster():
    util = multi_worker_util
    assert [util.id_in_cluster(FULL, "worker", index) for index in (0, 1)] == [1, 2]
    assert util.id_in_cluster({"worker": ["a", "b"]}, "worker", 1) == 1
    assert (util.id_in_cluster(FULL, "chief", 0), util.worker_count(FULL, "chief")) == (
        0,
        3,
    )
    assert util.worker_count(FULL, "evaluator") == 1
    assert [util.is_chief(FULL, job, 0) for job in FULL.jobs] == [
        True,
        False,
        False,
        True,
    ]
    assert util.is_chief({"worker": ["a", "b"]}, "worker", 0)
    assert util.is_chief({}, "worker", 5)
    assert util.collective_leader(FULL, "worker", 1) == "/job:chief/replica:0/task:0"
    assert util.collective_leader({"worker": ["a"]}, "worker", 0).startswith(
        "/job:worker"
    )
    assert util.collective_leader(FULL, "evaluator", 0) == ""
    for wrong, text in [
        (lambda: util.id_in_cluster(FULL, "ps", 0), "ps task"),
        (lambda: util.worker_count(FULL, "ps"), "ps task"),
        (lambda: util.is_chief(FULL, "worker", 2), "no task worker 2"),
        (lambda: util.worker_count(FULL, "boss"), "task_type is 'boss'"),
        (lambda: util.is_chief({"boss": ["a"]}, "boss", 0), "job 'boss'"),
        (
            lambda: util.is_chief({"chief": ["a", "b"]}, "chief", 0),
            "2 tasks of job chief",
        ),
    ]:
        with pytest.raises(ValueError, match=text):
            wrong()
