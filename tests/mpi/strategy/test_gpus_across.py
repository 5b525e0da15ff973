"""Strategies over several ranks, each on pretended GPUs of its own or shared ones."""

import numpy as np
import pytest

import collectives
import strategy as distribute
from strategy import IndexedSlices, PerReplica, Variable, gradients
from strategy import VariableAggregation as Aggregation
from strategy import VariableSynchronization as Synchronization

pytestmark = pytest.mark.gpus


def place(array):
    """Return the number of an array's GPU, None for one on the host."""
    return None if isinstance(array, (np.ndarray, np.generic)) else array.device.id


def host(array):
    return array.get() if hasattr(array, "get") else np.asarray(array)


def number():
    return int(distribute.get_replica_context().replica_id_in_sync_group)


def here(array):
    """Return an array where the replica is."""
    if "CPU" in distribute.get_replica_context().devices[0]:
        return array
    import cupy

    return cupy.asarray(array)


def gpus(comm, count):
    """Return names of GPUs; the first, which goes across, is the rank's own.

    Where there are not as many the rest are CPUs.
    """
    there = len(collectives.gpu.visible_devices())
    names = [f"GPU:{(comm.rank + index) % there}" for index in range(min(count, there))]
    return names + [f"CPU:{1 + index}" for index in range(count - len(names))]


@pytest.fixture(params=["1 GPU", "2 GPUs", "CPU and GPU", "some ranks"])
def several(request, comm):
    """Return a strategy, its devices chosen in one of several ways."""
    devices = {
        "1 GPU": None,
        "2 GPUs": gpus(comm, 2),
        "CPU and GPU": ["CPU:0", *gpus(comm, 1)],
        "some ranks": ["CPU:0"] if comm.rank == comm.size - 1 else gpus(comm, 1),
    }[request.param]
    return distribute.MultiWorkerMirroredStrategy(devices=devices)


def local(strategy, result):
    return strategy.experimental_local_results(result)


@pytest.fixture
def no_nccl(comm):
    """Return why NCCL cannot move the default devices' arrays; empty where it can."""
    there = comm.all_gather_object(len(collectives.gpu.visible_devices()))
    if not all(there):
        return "have no GPU"
    return "share one GPU" if there[0] < comm.size else ""


def test_each_local_rank_has_a_gpu_of_its_own_as_long_as_there_are_any(
    comm, own_device
):
    strategy = distribute.MultiWorkerMirroredStrategy()
    (name,) = strategy.extended.worker_devices
    assert name.endswith(f"/task:{comm.rank}/device:{own_device}")
    with strategy.scope():
        weight = Variable(np.arange(3.0) + comm.rank)
    kind, index = own_device.split(":")
    assert place(weight.read_value()) == (int(index) if kind == "GPU" else None)
    assert place(weight.read_value() + 1) == place(weight.read_value())
    assert weight.numpy().tolist() == [0, 1, 2]


def test_a_gpu_that_one_rank_does_not_have_is_an_error_on_all(comm):
    devices = ["GPU:17"] if comm.rank == comm.size - 1 else ["GPU:0"]
    wanted = rf"rank {comm.size - 1}: no GPU:17: this process sees (no GPU|GPU:0 \()"
    with pytest.raises(distribute.ClusterError, match=wanted):
        distribute.MultiWorkerMirroredStrategy(devices=devices)


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int16", "int64", "complex64"])
@pytest.mark.parametrize("pack", [0, 1, 1 << 20])
def test_all_reduce(several, comm, op, dtype, pack):
    options = distribute.CommunicationOptions(bytes_per_pack=pack)
    count = several.num_replicas_in_sync

    def replica():
        a = here(np.arange(6).reshape(2, 3).astype(dtype) * number())
        value = {"a": a, "host": np.float32(number()), "b": [here(np.ones((), dtype))]}
        return a, distribute.get_replica_context().all_reduce(op, value, options)

    given, result = several.run(replica)
    total = sum(range(count)) / (count if op == "MEAN" else 1)
    one = 1 if op == "MEAN" else count
    for mine, a, number_, b in zip(
        *(
            local(several, part)
            for part in (given, result["a"], result["host"], result["b"][0])
        ),
        strict=True,
    ):
        assert place(a) == place(mine) == place(b)
        assert place(number_) is None
        wanted = np.arange(6).reshape(2, 3) * total
        np.testing.assert_allclose(host(a), wanted, rtol=1e-3)
        assert (float(number_), complex(host(b))) == (total, one)
    mine = [host(a).tobytes() for a in local(several, result["a"])]
    assert len({bits for rank in comm.all_gather_object(mine) for bits in rank}) == 1


def test_reduce_gather_and_slices(several):
    count = several.num_replicas_in_sync

    def replica():
        context = distribute.get_replica_context()
        x = here(np.arange(number() + 1.0))
        rows = IndexedSlices(here(np.full((1, 2), 1.0 + number())), here(np.array([0])))
        joined = context.all_gather(x, 0)
        return x, joined, context.all_reduce("MEAN", rows), here(np.ones(2))

    x, joined, rows, ones = several.run(replica)
    wanted = np.concatenate([np.arange(n + 1.0) for n in range(count)])
    homes = list(map(place, local(several, x)))
    for part, slices, home in zip(
        local(several, joined), local(several, rows), homes, strict=True
    ):
        assert (place(part), place(slices.values)) == (home, home)
        assert host(part).tolist() == wanted.tolist()
        values = host(slices.values)
        assert values.tolist() == [[(1 + n) / count] * 2 for n in range(count)]
    gathered, total = several.gather(x, 0), several.reduce("SUM", ones, axis=None)
    assert (place(gathered), place(total)) == (homes[0], homes[0])
    assert host(gathered).tolist() == wanted.tolist()
    assert host(total).tolist() == [count, count]
    assert float(several.reduce("MEAN", x, axis=0)) == pytest.approx(wanted.mean())
    on_host = several.extended.reduce_to("SUM", ones, "CPU:0")
    assert (place(on_host), on_host.tolist()) == (None, [count, count])


def test_start_and_gradients(several):
    count = several.num_replicas_in_sync

    def replica():
        context = distribute.get_replica_context()
        options = distribute.CommunicationOptions(bytes_per_pack=64)
        values = [here(np.full(size, number())) for size in (3, 100, 7)]
        started = context.start_all_reduce("SUM", [*values, np.float64(1)], options)
        y, backward = gradients.all_gather(here(np.ones((2, number() + 1))), 1)
        return started.wait(), backward(y)

    results, back = several.run(replica)
    for index, result in enumerate(results[:3]):
        for part in local(several, result):
            assert host(part).tolist() == [sum(range(count))] * (3, 100, 7)[index]
    assert set(map(float, local(several, results[3]))) == {count}
    for replica_id, part in zip(
        several.extended.replica_ids, local(several, back), strict=True
    ):
        assert host(part).tolist() == [[count] * (replica_id + 1)] * 2


def test_variables_and_checkpoints(several, comm, tmp_path_factory):
    count = several.num_replicas_in_sync
    ids = range(count)
    with several.scope():
        made = {
            each: Variable(np.arange(3.0) + comm.rank, aggregation=each)
            for each in list(Aggregation)[1:]
        }
        read = Synchronization.ON_READ
        seen = Variable(0, synchronization=read, aggregation=Aggregation.SUM)

    def replica():
        for variable in made.values():
            variable.assign_add(here(np.full(3, number() + 1.0)))
        seen.assign_add(number())

    several.run(replica)
    wanted = {
        Aggregation.SUM: sum(ids) + count,
        Aggregation.MEAN: (sum(ids) + count) / count,
        Aggregation.ONLY_FIRST_REPLICA: 1,
    }
    for each, variable in made.items():
        for component in variable.values:
            assert component.numpy().tolist() == [wanted[each] + n for n in range(3)]
    assert int(seen) == sum(ids)
    folder = comm.broadcast_object(str(tmp_path_factory.mktemp("checkpoint")))
    weight = made[Aggregation.SUM]
    checkpoint = distribute.Checkpoint(weight=weight, seen=seen)
    path = checkpoint.write(f"{folder}/one")
    weight.assign(np.zeros(3))
    seen.assign(0)
    checkpoint.restore(path)
    for component, device in zip(
        weight.values, several.extended.worker_devices, strict=True
    ):
        kind, index = device.split(":")[-2:]
        assert place(component.read_value()) == (int(index) if kind == "GPU" else None)
        assert component.numpy().tolist() == [
            wanted[Aggregation.SUM] + n for n in range(3)
        ]
    assert int(seen) == sum(ids)


def test_datasets_are_fetched(several):
    dataset = distribute.data.Dataset.from_tensor_slices(np.arange(23.0)).batch(8)
    total = 0.0
    for step in several.experimental_distribute_dataset(dataset):
        parts = local(several, step)
        for part, device in zip(parts, several.extended.worker_devices, strict=True):
            assert (place(part) is None) is ("CPU" in device)
        total += float(several.reduce("SUM", step, axis=0))
    assert total == sum(range(23))


def test_nccl_where_a_rank_has_no_gpu_names_it_on_every_rank(comm):
    options = distribute.CommunicationOptions(implementation="NCCL")
    devices = ["CPU:0"] if comm.rank == comm.size - 1 else ["GPU:0"]
    wanted = rf"NCCL cannot run: rank\(s\) {comm.size - 1} have no GPU"
    with pytest.raises(collectives.UnsupportedError, match=wanted):
        distribute.MultiWorkerMirroredStrategy(
            communication_options=options, devices=devices
        )
    strategy = distribute.MultiWorkerMirroredStrategy(devices=devices)
    with pytest.raises(collectives.UnsupportedError, match=wanted):
        strategy.extended.reduce_to("SUM", np.ones(1), "CPU:0", options)
    assert strategy.reduce("SUM", np.ones(1), axis=None).tolist() == [comm.size]


def test_nccl_between_all_ranks_or_none(comm, no_nccl):
    def make():
        options = distribute.CommunicationOptions(implementation="NCCL")
        return distribute.MultiWorkerMirroredStrategy(communication_options=options)

    def replica():
        value = [here(np.arange(4.0)), np.float32(number())]
        return distribute.get_replica_context().all_reduce("SUM", value)

    if no_nccl:
        with pytest.raises(collectives.UnsupportedError, match=no_nccl):
            make()
        return
    strategy = make()
    on_gpu, on_host = strategy.run(replica)
    assert host(on_gpu).tolist() == [n * comm.size for n in range(4)]
    assert (place(on_host), float(on_host)) == (None, sum(range(comm.size)))
    assert set(strategy.extended.last_communication.algorithms) == {"nccl"}
    assert strategy.reduce("SUM", np.ones(2), axis=None).tolist() == [comm.size] * 2


def test_what_moved_arrays_is_told(comm, no_nccl):
    strategy = distribute.MultiWorkerMirroredStrategy()

    def replica(array):
        return distribute.get_replica_context().all_reduce("SUM", array)

    strategy.run(lambda: replica(here(np.ones(1000, np.float32))))
    used = strategy.extended.last_communication
    device = "cpu" if no_nccl == "have no GPU" else "cuda"
    choice = comm.choose("all_reduce", 4000, device=device)
    assert used.algorithms == (choice.algorithm,)
    assert (choice.algorithm == "nccl") is (comm.size > 1 and not no_nccl), choice
    strategy.run(lambda: replica(np.ones(1000, np.float32)))
    choice = comm.choose("all_reduce", 4000)
    assert strategy.extended.last_communication.algorithms == (choice.algorithm,)


def test_ring_goes_by_way_of_the_host(comm):
    options = distribute.CommunicationOptions(implementation="RING")
    strategy = distribute.MultiWorkerMirroredStrategy(communication_options=options)

    def replica():
        x = here(np.arange(5.0) * (number() + 1))
        return distribute.get_replica_context().all_reduce("SUM", x)

    result = strategy.run(replica)
    assert host(result).tolist() == [n * sum(range(1, comm.size + 1)) for n in range(5)]
    assert strategy.extended.last_communication.algorithms == ("ring",)


def test_what_one_rank_does_wrong_is_told_to_all(several, comm):
    count = len(several.extended.replica_ids)

    def replica():
        rows = 3 if comm.rank == comm.size - 1 else 2
        wrong = here(np.ones(rows, np.float32))
        return distribute.get_replica_context().all_reduce("SUM", wrong)

    if comm.size > 1:
        with pytest.raises(collectives.MismatchError):
            several.run(replica)
    value = PerReplica([np.ones(2)] * count)
    total = several.reduce("SUM", value, axis=None)
    assert total.tolist() == [several.num_replicas_in_sync] * 2
