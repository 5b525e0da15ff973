"""Strategies of one process on pretended GPUs; each rank by itself.

The double of CuPy objects where work on different GPUs is in no order.
"""

import numpy as np
import pytest

import collectives
import strategy as distribute
from strategy import IndexedSlices, PerReplica, Variable, gradients
from strategy import VariableAggregation as Aggregation
from strategy import VariableSynchronization as Synchronization

pytestmark = pytest.mark.gpus

SETS = ["GPU:0,GPU:1", "GPU:3,GPU:1,GPU:0", "GPU:0,GPU:1,GPU:2,GPU:3", "CPU:0,GPU:1"]
SETS += ["GPU:2,CPU:0", "GPU:1"]
OPS = {
    "default": lambda: None,
    "one_device": distribute.ReductionToOneDevice,
    "on_the_host": lambda: distribute.ReductionToOneDevice("CPU:0"),
    "elsewhere": lambda: distribute.ReductionToOneDevice("GPU:2"),
    "halves": distribute.HierarchicalCopyAllReduce,
    "halves_apart": lambda: distribute.HierarchicalCopyAllReduce(0),
}


@pytest.fixture(autouse=True)
def four_gpus(request):
    """Skip where the ranks do not see four."""
    if {*request.config.option.gpus.split(",")} != {*"0123"}:
        pytest.skip("wants --gpus 0,1,2,3")


@pytest.fixture(scope="module")
def cupy():
    import cupy

    return cupy


def named(devices):
    return devices.split(",")


def on_cpus(devices):
    return [f"CPU:{index}" for index in range(len(named(devices)))]


def place(array):
    """Return the number of an array's GPU, None for what is on the host."""
    return getattr(getattr(array, "device", None), "id", None)


def places(devices):
    return [
        None if name.startswith("CPU") else int(name[4:]) for name in named(devices)
    ]


def host(value):
    """Return a nest with all arrays on the host."""
    if isinstance(value, distribute.DistributedValues):
        return [host(part) for part in value.values]
    if isinstance(value, dict):
        return {key: host(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [host(part) for part in value]
    if isinstance(value, IndexedSlices):
        return [host(value.values), host(value.indices)]
    if hasattr(value, "numpy"):
        return value.numpy()
    if place(value) is None:
        return np.asarray(value)
    with value.device:  # whose current stream is the one to wait for
        return value.get()


def same(one, other):
    """Assert that two nests have the same dtypes and bits."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list):
        assert len(one) == len(other)
        for part, its in zip(one, other, strict=True):
            same(part, its)
        return
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert one.tobytes() == other.tobytes()


def number():
    return int(distribute.get_replica_context().replica_id_in_sync_group)


def here(array):
    """Return an array where the replica is."""
    if "CPU" in distribute.get_replica_context().devices[0]:
        return array
    import cupy

    return cupy.asarray(array)


def numbers(shape, dtype=np.float64, seed=0):
    """Return other numbers on each replica, where it is."""
    random = np.random.default_rng([seed, number()])
    return here((random.normal(size=shape) * 8).astype(dtype))


def compared(devices, program, make=distribute.MirroredStrategy, **more):
    """Run a program on devices and on as many CPUs; all bits must be the same."""
    strategy = make(named(devices), **more)
    found = program(strategy)
    same(host(found), host(program(make(on_cpus(devices), **more))))
    return strategy, found


def local(strategy, value):
    return strategy.experimental_local_results(value)


def test_without_devices_all_gpus_are_taken(cupy):
    strategy = distribute.MirroredStrategy()
    count = cupy.cuda.runtime.getDeviceCount()
    assert len(collectives.gpu.visible_devices()) == count > 1
    wanted = [f"/device:GPU:{index}" for index in range(count)]
    assert all(map(str.endswith, strategy.extended.worker_devices, wanted))


@pytest.mark.parametrize(
    "make",
    [
        lambda: distribute.MirroredStrategy(["GPU:0", "GPU:17"]),
        lambda: distribute.OneDeviceStrategy("GPU:17"),
        lambda: distribute.CentralStorageStrategy(["GPU:0"], "GPU:17"),
    ],
)
def test_a_gpu_that_is_not_there_is_an_error_that_names_what_is(make):
    with pytest.raises(
        collectives.UnsupportedError, match=r"no GPU:17.*sees GPU:0 \(GPU-"
    ):
        make()


@pytest.mark.parametrize("devices", SETS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int16", "int32"])
@pytest.mark.parametrize("op", ["SUM", "MEAN"])
def test_all_reduce_has_the_bits_of_the_host(devices, dtype, op):
    def program(strategy):
        def replica():
            value = {"a": numbers((3, 4), dtype), "b": [numbers((), dtype, seed=1)]}
            return distribute.get_replica_context().all_reduce(op, value)

        return strategy.run(replica)

    ring = distribute.CommunicationOptions(implementation="RING")
    strategy, found = compared(devices, program, cross_device_ops=collective(ring))
    assert list(map(place, local(strategy, found["a"]))) == places(devices)


def collective(options):
    """Return the default operations, with hints."""
    from strategy.collective_all_reduce import CollectiveAllReduce

    return CollectiveAllReduce(options=options)


@pytest.mark.parametrize("devices", SETS)
@pytest.mark.parametrize("ops", OPS)
def test_operations_reduce_and_gather(devices, ops):
    def program(strategy):
        def replica():
            context = distribute.get_replica_context()
            whole = [float(round(float(x))) for x in host(numbers(5))]
            a, b = here(np.array(whole)), here(np.arange(6.0).reshape(2, 3) * number())
            return a, b, context.all_reduce("SUM", [a, b]), context.all_gather(b, 1)

        a, b, sums, joined = strategy.run(replica)
        results = [sums, joined, strategy.reduce("SUM", a, None)]
        results += [strategy.reduce("MEAN", [a, b], None), strategy.gather(b, 0)]
        results += [
            strategy.reduce("MEAN", b, axis=0),
            strategy.reduce("SUM", b, (0, 1)),
        ]
        if len(local(strategy, a)) > 1:
            results.append(strategy.extended.reduce_to("SUM", a, a))
            pairs = [(a, a), (b, b), (a, b)]
            results += strategy.extended.batch_reduce_to("SUM", pairs)
        return [*results, strategy.extended.reduce_to("MEAN", a, "CPU:0")]

    strategy = distribute.MirroredStrategy(named(devices), OPS[ops]())
    found = program(strategy)
    same(host(found), host(program(distribute.MirroredStrategy(on_cpus(devices)))))
    at = places(devices)
    assert [list(map(place, local(strategy, part))) for part in found[0]] == [at, at]
    assert list(map(place, local(strategy, found[1]))) == at
    assert [place(found[2]), place(found[4]), place(found[-1])] == [at[0], at[0], None]


@pytest.mark.parametrize("devices", SETS[:3])
def test_nccl_adds_what_it_can_at_once(devices):
    def program(strategy):
        def replica():
            value = [here(np.arange(4.0) * number()), here(np.float16([2.5, number()]))]
            return distribute.get_replica_context().all_reduce("MEAN", value)

        return strategy.run(replica)

    wanted = host(program(distribute.MirroredStrategy(on_cpus(devices))))
    for ops in (None, distribute.NcclAllReduce()):
        strategy = distribute.MirroredStrategy(named(devices), ops)
        found = program(strategy)
        same(host(found), wanted)
        assert list(map(place, local(strategy, found[1]))) == places(devices)
        assert set(strategy.extended.last_communication.algorithms) == {"nccl"}


def test_what_nccl_cannot_do_is_copied_unless_it_is_asked_for():
    two = distribute.MirroredStrategy(["GPU:0", "GPU:1"])

    def replica(dtype, name):
        options = distribute.CommunicationOptions(implementation=name)
        context = distribute.get_replica_context()
        return context.all_reduce("SUM", here(np.ones(3, dtype)), options)

    assert host(two.run(replica, (np.int16, "AUTO")))[1].tolist() == [2, 2, 2]
    assert two.extended.last_communication.algorithms == ("local",)
    assert host(two.run(replica, (np.int32, "NCCL")))[1].tolist() == [2, 2, 2]
    assert two.extended.last_communication.algorithms == ("nccl",)
    assert two.extended.last_communication.ignored == ""
    with pytest.raises(collectives.UnsupportedError, match="NCCL has no sum of int16"):
        two.run(replica, (np.int16, "NCCL"))
    mixed = distribute.MirroredStrategy(["GPU:0", "CPU:0"])
    with pytest.raises(collectives.UnsupportedError, match=r"\[1\] have no GPU"):
        mixed.run(replica, (np.int32, "NCCL"))
    by_nccl = distribute.MirroredStrategy(
        ["GPU:0", "GPU:1"], distribute.NcclAllReduce()
    )
    with pytest.raises(collectives.UnsupportedError, match=r"int16.*ReductionToOneDev"):
        by_nccl.run(replica, (np.int16, "AUTO"))


def test_without_nccl_the_reason_is_told(monkeypatch):
    monkeypatch.setattr("collectives.gpu.local.nccl_version", lambda module: 0)
    two = distribute.MirroredStrategy(["GPU:0", "GPU:1"])

    def replica(name):
        options = distribute.CommunicationOptions(implementation=name)
        context = distribute.get_replica_context()
        return context.all_reduce("SUM", here(np.ones(2)), options)

    assert host(two.run(replica, ("AUTO",)))[1].tolist() == [2, 2]
    with pytest.raises(collectives.UnsupportedError, match="CuPy finds no NCCL"):
        two.run(replica, ("NCCL",))


@pytest.mark.parametrize("devices", SETS)
@pytest.mark.parametrize("kind", ["mirrored", "central", "central on GPU:1"])
def test_variables(devices, kind):
    central = {"central": "CPU:0", "central on GPU:1": "GPU:1"}.get(kind)

    def make(names, **more):
        if central is None:
            return distribute.MirroredStrategy(names)
        return distribute.CentralStorageStrategy(names, central)

    def program(strategy):
        made = {}
        with strategy.scope():
            for each in list(Aggregation)[1:]:
                made[each.name] = Variable(np.arange(3.0), aggregation=each)
            for each in (Aggregation.SUM, Aggregation.MEAN):
                read = Synchronization.ON_READ
                made[f"on_read {each.name}"] = Variable(
                    here_or_not(strategy), synchronization=read, aggregation=each
                )
            counted = Variable(7, aggregation=Aggregation.SUM)

        def replica():
            x = numbers(3)
            results = []
            for variable in made.values():
                results.append(variable.assign_add(x))
                variable.assign_sub(np.ones(3))
                results.append(variable.assign(x * variable - variable[0]))
            counted.assign_add(number())
            return results

        results = strategy.run(replica)
        made["SUM"].assign_add(here_or_not(strategy))
        made["SUM"].assign(made["MEAN"] + 2 * made["MEAN"])
        components = [variable.values for variable in made.values()]
        return [results, components, made, counted, [made["SUM"] + 1, -made["MEAN"]]]

    _, found = compared(devices, program, make)
    homes = places(devices) if central is None else [None if central == "CPU:0" else 1]
    if central is None or len(places(devices)) > 1:
        values = found[2]["SUM"].values
        assert [place(component.read_value()) for component in values] == homes


def here_or_not(strategy):
    """Return an array on a GPU of the strategy, if it has one."""
    name = strategy.extended.worker_devices[-1]
    if "CPU" in name:
        return np.array([1.0, 2, 4])
    import cupy

    with cupy.cuda.Device(int(name.rpartition(":")[2])):
        return cupy.asarray(np.array([1.0, 2, 4]))


@pytest.mark.parametrize("devices", SETS)
def test_rows_and_slices(devices):
    changes = ["add", "sub", "mul", "min", "max", "update"]

    def program(strategy):
        with strategy.scope():
            table = Variable(np.arange(10.0).reshape(5, 2))
            total = Variable(np.zeros((5, 2)), aggregation=Aggregation.SUM)

        def replica():
            context = distribute.get_replica_context()
            rows = IndexedSlices(numbers((3, 2)), here(np.array([4, 0, 4])), (5, 2))
            for name in changes:
                getattr(table, f"scatter_{name}")(rows)
            total.scatter_add(rows)
            return context.all_reduce("MEAN", [rows, numbers(2)])

        return [strategy.run(replica), table.values, total.values]

    compared(devices, program)


@pytest.mark.parametrize("devices", SETS)
def test_meetings_updates_and_gradients(devices):
    def program(strategy):
        with strategy.scope():
            weight = Variable(np.arange(3.0))

        def merge(strategy, x):
            mean = strategy.extended.reduce_to("MEAN", x, x)
            changed = strategy.extended.update(
                weight, lambda w, m: w.assign(w + np.multiply(m, 2)), (mean,)
            )
            return mean, changed

        def replica():
            context = distribute.get_replica_context()
            mean, changed = context.merge_call(merge, (here(np.ones(3) * number()),))
            y, backward = gradients.all_gather(numbers((2, number() + 1)), 1)
            started = context.start_all_reduce("SUM", [numbers(4), numbers(2, seed=3)])
            return mean, changed, y, backward(y * number()), started.wait()

        concurrent = distribute.RunOptions(concurrent=True)
        first = strategy.run(replica)
        return [first, strategy.run(replica, options=concurrent), weight.values]

    compared(devices, program)


@pytest.mark.parametrize("devices", SETS)
def test_input_is_fetched_to_the_devices(devices):
    def program(strategy, options=None):
        dataset = distribute.data.Dataset.from_tensor_slices(np.arange(14.0)).batch(6)
        shared = strategy.experimental_distribute_dataset(dataset, options)
        own = strategy.distribute_datasets_from_function(
            lambda context: dataset, options
        )
        return [list(shared), list(own)]

    strategy, found = compared(devices, program)
    for step in [*found[0], *found[1]]:
        assert list(map(place, local(strategy, step))) == places(devices)
    stay = distribute.InputOptions(experimental_fetch_to_device=False)
    for steps in program(strategy, stay):
        for step in steps:
            assert set(map(place, local(strategy, step))) == {None}


@pytest.mark.parametrize("devices", SETS)
def test_checkpoints_go_from_gpus_to_cpus_and_back(devices, tmp_path):
    def made(names):
        strategy = distribute.MirroredStrategy(names)
        with strategy.scope():
            weight = Variable(np.zeros((2, 3), np.float32))
            seen = Variable(
                np.int64(0),
                synchronization=Synchronization.ON_READ,
                aggregation=Aggregation.SUM,
            )
        return strategy, weight, seen, distribute.Checkpoint(weight=weight, seen=seen)

    _, weight, seen, checkpoint = made(named(devices))
    weight.assign(np.arange(6, dtype=np.float32).reshape(2, 3))
    seen.assign(11)
    path = checkpoint.write(tmp_path / "one")
    for names in (on_cpus(devices), named(devices)):
        _, weight, seen, checkpoint = made(names)
        checkpoint.restore(path)
        assert weight.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
        assert int(seen) == 11
        wanted = places(",".join(names))
        assert [place(part.read_value()) for part in weight.values] == wanted


def test_one_device(cupy):
    one = distribute.OneDeviceStrategy("GPU:1")
    with one.scope():
        weight = Variable(np.arange(3.0), aggregation=Aggregation.SUM)

    def step(x):
        assert cupy.cuda.runtime.getDevice() == 1
        context = distribute.get_replica_context()
        weight.assign_add(context.all_reduce("SUM", x) * 2)
        return weight * x

    before = cupy.cuda.runtime.getDevice()
    for batch in one.experimental_distribute_dataset([np.ones(3), np.full(3, 2.0)]):
        result = one.run(step, (batch,))
    assert [place(result), place(weight.read_value()), place(weight + 1)] == [1, 1, 1]
    assert host(one.reduce("SUM", result, axis=None)).tolist() == [12, 14, 16]
    assert host(one.reduce("SUM", result, axis=0)) == 42
    assert float(weight[2]) == 8
    assert weight.numpy().tolist() == [6, 7, 8]
    assert cupy.cuda.runtime.getDevice() == before


@pytest.mark.parametrize("kind", ["own", "per_thread"])
def test_work_follows_the_stream_of_the_caller(cupy, kind):
    here_, other = cupy.cuda.Device().id, (cupy.cuda.Device().id + 1) % 2
    two = distribute.MirroredStrategy([f"GPU:{here_}", f"GPU:{other}"])

    def replica(x):
        for _ in range(3):
            x = distribute.get_replica_context().all_reduce("MEAN", x * 2)
            weight.assign_add(x)
        return x

    def values(context):
        with cupy.cuda.Device((here_, other)[context.replica_id_in_sync_group]):
            return cupy.full(4, float(context.replica_id_in_sync_group))

    stream = cupy.cuda.Stream.ptds
    if kind == "own":
        stream = cupy.cuda.Stream(non_blocking=True)  # of the current GPU
    with stream, two.scope():
        weight = Variable(np.zeros(4), aggregation=Aggregation.MEAN)
        x = two.experimental_distribute_values_from_function(values)
        results = two.run(replica, (x,))
        assert host(results)[1].tolist() == [4] * 4
        assert weight.numpy().tolist() == [7] * 4


def test_arrays_of_others(cupy):
    class Foreign:
        """An array of another library, which speaks one protocol."""

        dtype, shape, ndim = np.dtype(np.float64), (3,), 1

        def __init__(self, array):
            self.__cuda_array_interface__ = array.__cuda_array_interface__
            self.array = array

    two = distribute.MirroredStrategy(["GPU:0", "GPU:1"])

    def replica():
        x = Foreign(cupy.arange(3.0) + number())
        return distribute.get_replica_context().all_reduce("SUM", x)

    result = two.run(replica)
    assert list(map(place, result.values)) == [0, 1]
    assert host(result)[0].tolist() == [1, 3, 5]


def test_an_error_in_one_replica_stops_the_others(cupy):
    two = distribute.MirroredStrategy(["GPU:0", "GPU:1"])

    def replica():
        if number() == 1:
            raise KeyError("wrong")
        distribute.get_replica_context().all_reduce("SUM", cupy.ones(3))

    with pytest.raises(KeyError):
        two.run(replica)
    with pytest.raises(distribute.StructureError, match="replica 1 has"):
        two.reduce("SUM", PerReplica([np.ones(2), np.ones(3)]), axis=None)
    assert cupy.cuda.runtime.getDevice() in (0, 1, 2, 3)
