"""Casts between narrow floats and float32: NumPy's bits, on every path."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from harness.arrays import LAYOUTS, PLACES, dtype_of
from harness.threads import run_ranks

from collectives import narrow
from collectives.narrow import add_narrow, add_to, narrow_into, widen

ROOT = Path(__file__).parents[2]
HALVES = ("float16", "bfloat16")
NARROW = (*HALVES, "float8_e4m3fn", "float8_e5m2")
# Where there is no numba there is no second path, and nothing of it to be tested.
PATHS = ("numpy", "compiled") if find_spec("numba") else ("numpy",)
LIMITS = {"numpy": 1 << 62, "compiled": 0}


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    """Take one path for arrays of any size."""
    monkeypatch.setattr(narrow, "LARGE", 0)
    monkeypatch.setattr(narrow, "COMPILE_AFTER", LIMITS[request.param])
    return request.param


def same_bits(a, b):
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def made_quiet(array):
    """Return a copy whose NaNs have a sign and no more: processors make them quiet."""
    quiet = {"float32": 0x7FC00000, "float16": 0x7E00, "bfloat16": 0x7FC0}
    bits = array.copy().view(f"u{array.dtype.itemsize}")
    if array.dtype.name in quiet:
        nan, sign = np.isnan(array), 1 << 8 * array.dtype.itemsize - 1
        bits[nan] = bits[nan] & sign | quiet[array.dtype.name]
    return bits.view(array.dtype)


def every_pattern(name):
    dtype = dtype_of(name)
    bits = np.dtype(f"u{dtype.itemsize}")
    return np.arange(1 << 8 * dtype.itemsize, dtype=bits).view(dtype)


def around_the_midpoints(name):
    """Return, as float32, what lies between two neighbours, and next to that."""
    patterns = every_pattern(name)[: 1 << 15].astype(np.float32)
    finite = patterns[np.isfinite(patterns)]
    beyond = finite[-1] + (finite[-1] - finite[-2]) / 2  # from here on it is inf
    middle = np.append(finite[:-1] / 2 + finite[1:] / 2, beyond).view(np.uint32)
    near = np.concatenate([middle - 1, middle, middle + 1])
    return np.concatenate([near, near | 0x80000000]).view(np.float32)


def any_pattern():
    """Return float32 of random bits, and every exponent with special fractions."""
    bits = np.random.default_rng(3).integers(0, 1 << 32, 1 << 20, np.uint32)
    exponents = np.arange(512, dtype=np.uint32)[:, None] << 23
    fractions = np.array([0, 1, 0xFFF, 0x1000, 0x2000, 0x400000, 0x7FFFFF], np.uint32)
    return np.append(bits, (exponents | fractions).reshape(-1)).view(np.float32)


def numpys(values, dtype):
    with np.errstate(all="ignore"):
        return values.astype(dtype)


def test_a_path_is_what_it_is_called(path):
    for name in HALVES:
        for loop in ("widen", "narrow", "add", "add_to"):
            found = narrow._loop(loop, dtype_of(name), 1)
            assert (found is not None) == (path == "compiled")


@pytest.mark.parametrize("name", NARROW)
def test_every_pattern_widens_to_numpys_bits(path, name):
    patterns = every_pattern(name)
    wide = numpys(patterns, np.float32)
    assert same_bits(made_quiet(widen(patterns)), made_quiet(wide))


@pytest.mark.parametrize("values", [around_the_midpoints, any_pattern])
@pytest.mark.parametrize("name", HALVES)
def test_everything_narrows_to_numpys_bits(path, name, values):
    wide = values(name) if values is around_the_midpoints else values()
    out = np.empty(wide.size, dtype_of(name))
    narrow_into(wide, out)
    wanted = made_quiet(numpys(wide, out.dtype))
    wrong = np.flatnonzero(made_quiet(out).view(np.uint16) != wanted.view(np.uint16))
    assert wrong.size == 0, [hex(bits) for bits in wide.view(np.uint32)[wrong[:9]]]


@pytest.mark.parametrize("name", HALVES)
def test_sums_are_rounded_once(path, name):
    a = every_pattern(name)
    b = np.random.default_rng(5).permutation(a)
    wide = numpys(a, np.float32)
    with np.errstate(all="ignore"):
        total = wide + numpys(b, np.float32)
    out = np.empty_like(a)
    if add_narrow(a, b, out):
        assert path == "compiled"
        numbers = ~np.isnan(total)
        assert same_bits(out[numbers], numpys(total, a.dtype)[numbers])
        assert np.isnan(out[~numbers].astype(np.float32)).all()
    else:
        assert path == "numpy"
    with np.errstate(all="ignore"):
        add_to(wide, b, np.empty_like(wide))
    np.testing.assert_array_equal(wide, total)


@pytest.mark.parametrize("name", HALVES)
def test_there_and_back_is_where_it_was(path, name):
    patterns = every_pattern(name)
    numbers = patterns[~np.isnan(widen(patterns))]
    out = np.empty_like(numbers)
    narrow_into(widen(numbers), out)
    assert same_bits(out, numbers)


def test_midpoints_are_what_they_should_be():
    values = around_the_midpoints("float16")
    assert values.size == 6 * 0x7C00
    assert {np.float32(65520), np.float32(2**-25), np.float32(1 + 2**-11)} <= {*values}
    assert around_the_midpoints("bfloat16").size == 6 * 0x7F80


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5), (2, 3, 4)])
def test_any_layout_widens(path, layout, name, shape):
    values = np.arange(np.prod(shape), dtype=dtype_of(name)).reshape(shape)
    array = LAYOUTS[layout](values)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    before = array.copy()
    wide = widen(array)
    assert same_bits(wide, before.astype(np.float32).reshape(-1))
    wide[...] = 9
    assert widen(array, out=wide) is wide
    assert same_bits(wide, before.astype(np.float32).reshape(-1))
    wide[...] = 9
    assert same_bits(array, before)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", [*NARROW, "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5)])
def test_any_layout_is_narrowed_into(path, place, name, shape):
    flat = np.arange(np.prod(shape), dtype=np.float32) / 4
    with PLACES[place](shape, dtype_of(name)) as out:
        narrow_into(flat, out)
        assert (out == flat.reshape(shape).astype(out.dtype)).all()


@pytest.mark.parametrize("name", HALVES)
def test_unaligned_and_fortran_outputs(path, name):
    dtype = dtype_of(name)
    flat = np.arange(6, dtype=np.float32)
    unaligned = np.zeros(6 * dtype.itemsize + 1, np.uint8)[1:].view(dtype)
    fortran = np.zeros((2, 3), dtype, order="F")
    for out in (unaligned, fortran):
        narrow_into(flat, out)
        assert (out == flat.reshape(out.shape).astype(dtype)).all()


@pytest.mark.parametrize("name", HALVES)
def test_nothing_warns_or_raises_whatever_numpy_has_been_told(path, name):
    """One rank must not fail in the middle of a call, and the others go on."""
    out = np.empty(4, dtype_of(name))
    signalling = (out.view(np.uint16) * 0 + 0x7F81).view(out.dtype)  # NaN in both
    with np.errstate(all="raise"):
        narrow_into(np.array([3.4e38, -3.4e38, np.nan, 1e-45], np.float32), out)
        assert np.isnan(widen(signalling)).all()
    assert [float(number) for number in out[[0, 1, 3]]] == [np.inf, -np.inf, 0]
    assert np.isnan(float(out[2]))


def test_other_numbers_go_their_usual_way(path):
    out = np.empty((2, 2), np.int32)
    narrow_into(np.array([1.0, 2.0, 3.0, 4.0]), out)
    assert out.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("op", ["sum", "mean", "prod"])
def test_a_call_has_the_same_bits_on_every_path(monkeypatch, op, name):
    def body(comm):
        random = np.random.default_rng(comm.rank)
        x = random.standard_normal((50, 40)).astype(dtype_of(name))
        return comm.all_reduce(x, op, algorithm="ring").tobytes()

    results = set()
    for path in PATHS:
        monkeypatch.setattr(narrow, "LARGE", 0)
        monkeypatch.setattr(narrow, "COMPILE_AFTER", LIMITS[path])
        results.update(run_ranks(3, body))
    assert len(results) == 1


def test_without_numba_numpy_does_it(monkeypatch):
    monkeypatch.setattr(narrow, "LARGE", 0)
    monkeypatch.setattr(narrow, "COMPILE_AFTER", 0)
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "collectives.narrow_loops", raising=False)
    narrow._loops.cache_clear()
    try:
        assert (widen(np.ones(3, np.float16)) == 1).all()
        assert narrow._loops("float16") == {}
    finally:
        narrow._loops.cache_clear()


@pytest.mark.parametrize(("elements", "times"), [(60_000, 50), (1 << 20, 2)])
def test_few_or_small_arrays_never_import_numba(elements, times):
    script = (
        "import sys, numpy as np, collectives\n"
        "comm = collectives.world()\n"
        f"x = np.ones({elements}, np.float16)\n"
        f"for turn in range({times}):\n"
        "    assert (comm.all_reduce(x, algorithm='ring') == comm.size).all()\n"
        "sys.exit('numba' in sys.modules)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr


def test_much_casting_leads_to_the_compiled_path(monkeypatch):
    monkeypatch.setattr(narrow, "COMPILE_AFTER", 3 << 20)
    monkeypatch.setattr(narrow, "_elements_cast", 0)
    asked = []
    monkeypatch.setattr(narrow, "_loops", lambda name: asked.append(name) or {})
    x = np.zeros(1 << 20, np.float16)
    for _ in range(2):
        widen(x)
        widen(x[:100])
    assert not asked
    narrow_into(np.zeros(1 << 20, np.float32), x)
    assert asked == ["float16"]
    widen(x.astype(ml_dtypes.bfloat16))
    assert asked == ["float16", "bfloat16"]


# --- what travels ---------------------------------------------------------------------

STAY_NARROW = ("exchange", "pairwise")


class Counting:
    """A transport that counts the bytes that all ranks send."""

    def __init__(self, messages, counts):
        self._messages, self._counts = messages, counts

    def send(self, peer, data, tag):
        self._counts.append(len(data))
        return self._messages.send(peer, data, tag)

    def __getattr__(self, name):
        return getattr(self._messages, name)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("op", ["sum", "mean", "prod"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("algorithm", STAY_NARROW)
def test_sums_are_those_of_float32_rounded_once(path, algorithm, size, op, name):
    """`ring` combines each block in the order of `exchange`."""
    like = {"exchange": "ring"}.get(algorithm, algorithm)

    def body(comm):
        random = np.random.default_rng(comm.rank)
        x = random.standard_normal((11, 40)).astype(dtype_of(name))
        small = comm.with_options(segment_bytes=64)
        wanted = np.empty_like(x)
        narrow_into(
            comm.all_reduce(x.astype(np.float32), op, algorithm=like).reshape(-1),
            wanted,
        )
        part = comm.reduce_scatter(x, op, algorithm=algorithm)
        low = sum(comm.all_gather(np.array([len(part)]))[: comm.rank])
        assert same_bits(part, wanted[low : low + len(part)])
        for one in (comm, small):
            assert same_bits(one.all_reduce(x, op, algorithm=algorithm), wanted)
        assert same_bits(small.all_reduce(x, op, out=x, algorithm=algorithm), wanted)

    run_ranks(size, body)


@pytest.mark.parametrize("algorithm", STAY_NARROW)
@pytest.mark.parametrize("size", [2, 5])
def test_narrow_floats_travel_as_they_are(algorithm, size):
    def sent(dtype):
        counts = []
        run_ranks(
            size,
            lambda comm: comm.all_reduce(np.ones(9999, dtype), algorithm=algorithm),
            transport=lambda messages: Counting(messages, counts),
        )
        return sum(counts)

    assert sent(np.float16) == sent(np.float32) / 2


def test_a_mean_does_not_overflow_on_the_way():
    def body(comm):
        x = np.full(5, 60000, np.float16)
        return comm.all_reduce(x, "mean", algorithm="exchange").tolist()

    assert run_ranks(3, body) == [[60000.0] * 5] * 3


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter"])
def test_auto_leaves_large_narrow_arrays_as_they_are(collective):
    def body(comm):
        chosen = [
            comm.choose(collective, nbytes, dtype, op).algorithm
            for nbytes, dtype, op in [
                (64 << 10, np.float16, "mean"),
                (1 << 10, np.float16, "mean"),
                (64 << 10, np.float16, "max"),
                (64 << 10, np.float32, "mean"),
            ]
        ]
        ordered = comm.with_options(deterministic=True)
        return [*chosen, ordered.choose(collective, 64 << 10, np.float16).algorithm]

    for small, *others, deterministic in run_ranks(2, body, "no board"):
        assert (small, deterministic) == ("exchange", "pairwise")
        assert not {"exchange", "pairwise"} & set(others)
