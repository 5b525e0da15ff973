"""Objects: what a parcel holds, what comes out of it, and what is refused and how."""

import collections
import dataclasses
import functools
import pickle
import threading

import ml_dtypes
import numpy as np
import pytest
from harness.threads import WORLDS, outcome, run_ranks

from collectives import InvalidArgumentError, MismatchError, UnsupportedError
from collectives.pickling import FRAME_BYTES, Parcel, dump, load, room_for

LIMIT = 1 << 30
MANY = FRAME_BYTES  # of elements; whatever their type, a frame


def travel(value, limit=LIMIT):
    """Return the object as another process would get it, and its parcel."""
    sent = dump(value, limit)
    stream = np.frombuffer(bytes(sent.stream), np.uint8)
    frames = room_for(stream)
    for frame, original in zip(frames, sent.frames, strict=True):
        frame[:] = original
    return load(Parcel(stream, frames)), sent


def read_only(array):
    array.flags.writeable = False
    return array


@dataclasses.dataclass
class Pair:
    a: object = None
    b: object = None


class Slots:
    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


class Device:
    """A device array, as far as anybody can tell without a device."""

    @property
    def __cuda_array_interface__(self):
        return {"shape": (1,), "typestr": "<f4", "data": (0, False), "version": 3}


class DeviceWithGradient:
    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("cannot be got while it requires a gradient")


class OnTheHost:
    @property
    def __cuda_array_interface__(self):
        raise AttributeError("not on a device")

    def __eq__(self, other):
        return type(other) is OnTheHost

    __hash__ = None


ARRAYS = {
    "large": np.arange(MANY),
    "small": np.arange(5),
    "bfloat16": np.arange(MANY).astype(ml_dtypes.bfloat16),
    "dates": np.arange(MANY).astype("datetime64[s]"),
    "records": np.ones(MANY, [("x", "f4"), ("n", "i8")]),
    "text": np.full(MANY, "abc"),
    "bool": np.arange(MANY) % 3 == 0,
    "2-d": np.arange(2 * MANY).reshape(2, MANY),
    "Fortran": np.asfortranarray(np.arange(3 * MANY).reshape(3, MANY)),
    "Fortran, 3-d": np.asfortranarray(np.arange(6 * MANY).reshape(2, MANY, 3)),
    "with gaps": np.arange(4 * MANY)[::-2],
    "stride 0": np.broadcast_to(np.float32(1.5), (2, MANY)),
    "0-d": np.array(7.5),
    "empty": np.empty((0, 3)),
    "objects": np.array([1, "two", None], object),
    "read-only": read_only(np.arange(MANY)),
    "read-only, small": read_only(np.arange(5)),
    "read-only, Fortran": read_only(np.asfortranarray(np.ones((3, MANY)))),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_comes_out_equal_and_can_be_written_into(name):
    array = ARRAYS[name]
    (got, again), sent = travel((array, array))
    assert type(got) is np.ndarray
    assert (got.dtype, got.shape) == (array.dtype, array.shape)
    assert (got == array).all()
    assert got is again
    assert got.flags.aligned
    assert got.flags.writeable
    assert got.flags.fnc == (array.flags.fnc)
    got[...] = got.copy()
    large = array.nbytes >= FRAME_BYTES
    assert [frame.nbytes for frame in sent.frames] == [array.nbytes] * large
    assert sent.stream.nbytes < 1000


@pytest.mark.parametrize("name", ["large", "bfloat16", "Fortran", "read-only"])
def test_an_array_without_gaps_is_sent_from_where_it_lies(name):
    sent = dump({"deep": [ARRAYS[name]]}, LIMIT)
    assert np.shares_memory(sent.frames[0], ARRAYS[name])


def test_an_array_lives_where_it_was_received():
    parcel = dump([np.arange(MANY)], LIMIT)
    (array,) = load(parcel)
    array[0] = -1
    assert parcel.frames[0].view(np.int64)[0] == -1


def test_arrays_of_other_classes_and_foreign_buffers():
    masked = np.ma.masked_less(np.arange(MANY), 3)
    buffer = pickle.PickleBuffer(bytes(FRAME_BYTES))
    (got, raw), sent = travel((masked, buffer))
    assert type(got) is np.ma.MaskedArray
    assert (got == masked).all()
    assert bytes(raw) == bytes(FRAME_BYTES)
    assert [frame.size for frame in sent.frames] == [FRAME_BYTES]


def test_the_rest_is_what_pickle_makes_of_it():
    value = {
        "numbers": [1, 2.5, 3j, None, True],
        "text": ("ä" * 100_000, b"b" * 100_000, bytearray(b"c") * FRAME_BYTES),
        "sets": ({1, 2}, frozenset("ab")),
        "objects": [Pair(1, [2]), OnTheHost()],
        "names": (np.float32, Pair, len, np.ndarray, Device),
    }
    value["itself"] = [value]
    got, sent = travel(value)
    assert got.pop("itself")[0] is got
    del value["itself"]
    assert got == value
    assert sent.frames == []


def test_the_limit_counts_the_stream_and_the_frames():
    value = {"x": np.zeros(MANY), "y": b"y" * 1000}
    sent = dump(value, LIMIT)
    trailer = 8 * (len(sent.frames) + 1)
    total = sent.stream.nbytes - trailer + sum(f.nbytes for f in sent.frames)
    dump(value, total)
    with pytest.raises(InvalidArgumentError) as caught:
        dump(value, total - 1)
    text = str(caught.value)
    assert f"more than {total - 1} bytes" in text
    assert "RINGFOLD_OBJECT_LIMIT_BYTES" in text


@pytest.mark.parametrize(
    "value",
    [
        np.broadcast_to(0.0, 1 << 50),
        [np.zeros(MANY)] * 3 + [b"x" * 5_000_000],
        [f"{number:09}" for number in range(300_000)],
    ],
    ids=["array with gaps", "bytes", "many small"],
)
def test_what_is_too_large_is_refused_before_it_is_copied(value):
    with pytest.raises(InvalidArgumentError, match="more than 3000000 bytes"):
        dump(value, 3_000_000)


def with_attributes(**attributes):
    value = Pair()
    vars(value).update(attributes)
    return value


LOCK = threading.Lock()
Point = collections.namedtuple("Point", "x y")
loop = [1]
loop += [loop, LOCK]

CULPRITS = {
    "value": LOCK,
    "value[1]": [1, LOCK],
    "value[0][2]": ((1, 2, LOCK),),
    "value['config'].callbacks[2].lock": {
        "config": with_attributes(callbacks=[1, len, with_attributes(lock=LOCK)])
    },
    "value[1][tuple]": [0, {(1, 2): LOCK}],
    "value.y": Slots(1, LOCK),
    "value.a.b.a": Pair(Pair(1, Pair(LOCK))),
    "value{…}.__reduce_ex__(5)[1][0]": {functools.partial(len, 1), LOCK.acquire},
    "value key lock": {LOCK: 1},
    "value['x']": collections.OrderedDict(x=LOCK),
    "value[1].a": collections.deque([1, Pair(LOCK)]),
    "value[2]": loop,
    "value['only']": collections.defaultdict(list, only=LOCK),
    "value.__reduce_ex__(5)[1][0]": collections.defaultdict(lambda: 1),
    "value.__reduce_ex__(5)[2][1][0]": functools.partial(len, LOCK),
}


@pytest.mark.parametrize("path", CULPRITS)
def test_the_error_names_what_cannot_be_pickled(path):
    with pytest.raises(UnsupportedError) as caught:
        dump(CULPRITS[path], LIMIT)
    text = str(caught.value)
    assert text.startswith(f"{path}: "), text
    assert "pickle" in text
    assert caught.value.__cause__ is not None


def test_an_error_of_a_class_itself_is_told_with_its_kind():
    class Stubborn:
        def __reduce__(self):
            raise KeyError("no")

    with pytest.raises(UnsupportedError, match=r"^value\[0\]: KeyError: 'no'$"):
        dump([Stubborn()], LIMIT)


def test_too_deep_is_told_in_short():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UnsupportedError, match=r"^value: RecursionError: ") as caught:
        dump(deep, LIMIT)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("kind", [Device, DeviceWithGradient])
def test_a_device_array_is_refused_wherever_it_is(kind):
    for path, value in {
        "value": kind(),
        "value['w'][1]": {"v": Device, "w": [1, kind()]},
        "value.a.b": Pair(Pair(0, kind())),
        "value.__reduce_ex__(5)[2][4][1]": np.array([1, kind()], object),
    }.items():
        with pytest.raises(UnsupportedError) as caught:
            dump(value, LIMIT)
        assert str(caught.value).startswith(f"{path}: {kind.__name__} lies on a device")


# --- the calls ------------------------------------------------------------------------


class Counting:
    """A transport that counts the bytes that a rank sends."""

    def __init__(self, messages, counts):
        self._messages, self._counts = messages, counts

    def send(self, peer, data, tag):
        self._counts[self._messages.rank] += len(data)
        return self._messages.send(peer, data, tag)

    def __getattr__(self, name):
        return getattr(self._messages, name)


def sample(rank):
    """Return an object with `rank` large arrays and some more in it."""
    arrays = [np.full(MANY + rank + n, 100 * rank + n, np.float32) for n in range(rank)]
    return {"rank": rank, "arrays": arrays, "text": "x" * rank}


def check(value, rank):
    wanted = sample(rank)
    assert (value["rank"], value["text"]) == (rank, wanted["text"])
    assert len(value["arrays"]) == rank
    for got, want in zip(value["arrays"], wanted["arrays"], strict=True):
        assert (got == want).all()
        assert got.flags.writeable
        got += 1


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_large_objects(size, world):
    def body(comm):
        mine = sample(comm.rank)
        for rank, value in enumerate(comm.all_gather_object(mine)):
            check(value, rank)
        for root in range(comm.size):
            check(comm.broadcast_object(sample(comm.rank), root), root)
            everyone = comm.gather_object(mine, root)
            assert (everyone is None) == (comm.rank != root)
            for rank, value in enumerate(everyone or []):
                check(value, rank)
        check(mine, comm.rank)  # all that came were copies

    run_ranks(size, body, world)


def test_a_root_gets_back_what_it_gave():
    def body(comm):
        given = [comm.rank]
        got = comm.broadcast_object(given, root=1)
        assert (got is given) == (comm.rank == 1)
        return got

    assert run_ranks(3, body) == [[1]] * 3


def test_who_sends_how_much():
    """A broadcast flows along a chain; a gather moves nothing but to the root."""
    array, small = np.zeros(8 * MANY), 2000
    counts = [0] * 4

    def sent(call):
        def body(comm):
            call(comm)

        counts[:] = [0] * 4
        run_ranks(4, body, transport=lambda messages: Counting(messages, counts))
        return list(counts)

    by_rank = sent(lambda comm: comm.broadcast_object(array, root=1))
    for rank, nbytes in enumerate(by_rank):
        passes_on = rank != 0  # the last of the chain that begins at 1
        assert passes_on * array.nbytes <= nbytes < passes_on * array.nbytes + small

    by_rank = sent(lambda comm: comm.gather_object(array, root=1))
    for rank, nbytes in enumerate(by_rank):
        gives = rank != 1
        assert gives * array.nbytes <= nbytes < gives * array.nbytes + small


CALLS = {
    "broadcast_object": lambda comm, value: comm.broadcast_object(value, root=1),
    "all_gather_object": lambda comm, value: comm.all_gather_object(value),
    "gather_object": lambda comm, value: comm.gather_object(value),
}


def same_error(call, kind, world="one board", **options):
    """Return the text of the error that all ranks raise; the next call must work."""

    def body(comm):
        error = outcome(lambda: call(comm))
        assert comm.all_gather_object(comm.rank) == [0, 1, 2]
        return error

    errors = run_ranks(3, body, world, **options)
    assert [type(error) for error in errors] == [kind] * 3, errors
    assert len({str(error) for error in errors}) == 1
    return str(errors[0])


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", CALLS)
def test_one_rank_with_too_large_an_object(name, world):
    text = same_error(
        lambda comm: CALLS[name](comm, b"x" * (5000 if comm.rank == 1 else 5)),
        MismatchError,
        world,
        object_limit_bytes=4000,
    )
    assert "; rank 1: " in text
    assert "more than 4000 bytes" in text


@pytest.mark.parametrize("name", ["all_gather_object", "gather_object"])
def test_all_with_too_large_an_object(name):
    same_error(
        lambda comm: CALLS[name](comm, b"x" * 5000),
        InvalidArgumentError,
        object_limit_bytes=4000,
    )


@pytest.mark.parametrize("name", CALLS)
def test_one_rank_with_what_cannot_be_pickled(name):
    text = same_error(
        lambda comm: CALLS[name](comm, {"a": [LOCK]} if comm.rank == 1 else 1),
        MismatchError,
    )
    assert "rank 1: " in text
    assert "value['a'][0]: cannot pickle '_thread.lock' object" in text


class Unwelcome:
    """Can be pickled anywhere, and unpickled on no rank but the first."""

    def __reduce__(self):
        return open_on_first, ()


rank_here = threading.local()


def open_on_first():
    if rank_here.rank != 0:
        raise ModuleNotFoundError(f"no such thing on rank {rank_here.rank}")
    return "opened"


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    ("name", "victims"), [("all_gather_object", 2), ("broadcast_object", 1)]
)
def test_what_one_rank_cannot_unpickle_is_an_error_on_all(name, victims, world):
    def call(comm):
        rank_here.rank = comm.rank
        return CALLS[name](comm, Unwelcome() if comm.rank == 1 else 0)

    text = same_error(call, UnsupportedError, world)
    assert text.count("cannot unpickle rank 1's object: ModuleNotFoundError") == victims
    assert "rank 2: cannot" in text


def test_what_the_root_cannot_unpickle_is_an_error_on_all():
    def call(comm):
        rank_here.rank = comm.rank
        return comm.gather_object(Unwelcome() if comm.rank == 0 else 0, root=2)

    assert same_error(call, UnsupportedError).startswith(
        "rank 2: cannot unpickle rank 0"
    )
