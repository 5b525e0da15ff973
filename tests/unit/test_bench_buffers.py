import numpy as np
import pytest

from collectives.bench import buffers


@pytest.mark.parametrize(
    ("nbytes", "dtype"), [(10, "float32"), (4096, "int8"), (5 << 20, "complex128")]
)
def test_buffers_begin_at_a_huge_page_and_hold_what_was_asked(nbytes, dtype):
    array = buffers.allocate(nbytes, dtype)
    assert array.ctypes.data % buffers.HUGE_PAGE == 0
    assert array.nbytes == nbytes // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize
    assert array.dtype == dtype
    assert array.flags.c_contiguous and array.flags.writeable
    assert not array.any()


def test_two_buffers_share_nothing():
    first, second = (buffers.allocate(1 << 20, "int8") for _ in range(2))
    first.fill(1)
    assert not second.any()


def test_the_kernel_is_asked_about_huge_pages():
    array = buffers.allocate(8 << 20, "int8")
    assert 0 <= buffers.huge_bytes(array) <= array.nbytes
    assert f"{buffers.huge_bytes(array) / array.nbytes:.0%}" in buffers.describe(array)


def test_untouched_memory_is_in_no_huge_page(monkeypatch):
    smaps = (
        "{:x}-{:x} rw-p 0 00:00 0\nSize: 4096 kB\nAnonHugePages: {} kB\n"
        "ffffff000-fffffff000 rw-p 0 00:00 0\nAnonHugePages: 2048 kB\n"
    )
    array = np.zeros(4 << 20, np.int8)
    low = array.ctypes.data
    for kib, expected in ((0, 0), (2048, 2 << 20), (8192, array.nbytes)):
        text = smaps.format(low, low + array.nbytes, kib)
        monkeypatch.setattr(buffers.Path, "read_text", lambda self, text=text: text)
        assert buffers.huge_bytes(array) == expected


def test_a_host_has_some_memory():
    available = buffers.available_bytes()
    assert available is None or available > 1 << 20
