"""Objects as bytes: pickle protocol 5, with large arrays beside the stream, not in it.

A **parcel** is what travels for one object: the *stream* that pickle writes, and the
*frames*, the memory of each large array in the object, sent from where it lies and
received into where it stays. The lengths of the frames follow pickle's own bytes in
the stream, so that whoever has the stream can make room for them.

Arrays come out ready to be written into, also those that were read-only.
"""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from collectives.errors import InvalidArgumentError, UnsupportedError
from collectives.kernels import Array
from collectives.transport import Buffer

PROTOCOL = 5
FRAME_BYTES = 256 << 10  # a message of its own costs more than a copy of less
ATOMS = frozenset((bool, int, float, complex, str, bytes, bytearray, type(None)))
NAME_LENGTH = 40  # of a dict's key in an error


class Parcel(NamedTuple):
    """An object ready to travel, or just arrived."""

    stream: Buffer
    frames: list[Array]
    """Flat arrays of bytes."""


def dump(value: Any, limit_bytes: int) -> Parcel:
    """Pickle an object; its large arrays are not copied, unless they have gaps.

    Raises:
        InvalidArgumentError: it would take more than `limit_bytes`.
        UnsupportedError: something in it cannot be pickled, or lies on a device; the
            text begins with the way there, such as `value.callbacks[2].lock`.
    """
    try:
        return _dump(value, limit_bytes)
    except InvalidArgumentError:
        raise
    except Exception as error:  # objects may raise whatever they like
        path, cause = _culprit(value, error, limit_bytes)
        raise UnsupportedError(f"{path}: {_in_words(cause)}") from error


def room_for(stream: Buffer) -> list[Array]:
    """Return new memory for each frame that belongs to a stream."""
    count = int(stream[-8:].view(np.int64)[0])
    lengths = stream[len(stream) - 8 * (count + 1) : -8].view(np.int64)
    return [np.empty(length, np.uint8) for length in lengths]


def load(parcel: Parcel) -> Any:
    """Return the object; its large arrays live in the parcel's frames."""
    return pickle.loads(parcel.stream, buffers=parcel.frames)


def _dump(value: Any, limit_bytes: int) -> Parcel:
    stream, frames = _Stream(limit_bytes), []

    def keep_in_stream(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < FRAME_BYTES:
            return True
        stream.count(raw.nbytes)
        frames.append(np.frombuffer(raw, np.uint8))
        return False

    pickler = _Pickler(stream, PROTOCOL, buffer_callback=keep_in_stream)
    pickler.check = stream.check
    pickler.dump(value)
    lengths = [*(frame.size for frame in frames), len(frames)]
    stream.data += np.array(lengths, np.int64).tobytes()
    return Parcel(np.frombuffer(stream.data, np.uint8), frames)


class _Stream:
    """What pickle writes, within a limit for it and the frames together."""

    def __init__(self, limit_bytes: int) -> None:
        self.data = bytearray()
        self._limit_bytes = limit_bytes
        self._counted = 0

    def write(self, data: Any) -> None:
        self.count(memoryview(data).nbytes)
        self.data += data

    def count(self, nbytes: int) -> None:
        self.check(nbytes)
        self._counted += nbytes

    def check(self, nbytes: int) -> None:
        """Raise unless there is room for so much more."""
        if self._counted + nbytes > self._limit_bytes:
            raise InvalidArgumentError(
                f"the pickled object has more than {self._limit_bytes} bytes, which is "
                "object_limit_bytes; raise that (RINGFOLD_OBJECT_LIMIT_BYTES), or move "
                "its arrays by themselves"
            )


class _Pickler(pickle.Pickler):
    """Takes the memory of arrays out of the stream, and refuses device arrays."""

    check: Callable[[int], None]
    """Raises unless there is room for so many bytes more."""

    def reducer_override(self, value: Any) -> Any:
        if _on_device(value):
            raise UnsupportedError(
                f"{type(value).__name__} lies on a device; objects are moved from host "
                "to host: put a copy on the host into the object"
            )
        if type(value) is np.ndarray and not value.dtype.hasobject:
            self.check(value.nbytes)  # before it is copied, if it has gaps
            return _reduce_array(value)
        return NotImplemented


def _on_device(value: Any) -> bool:
    if isinstance(value, type):
        return False
    try:
        return hasattr(value, "__cuda_array_interface__")
    except Exception:  # that of a torch tensor with a gradient raises
        return True


def _reduce_array(array: Array) -> Any:
    """Reduce a plain array; NumPy's own way copies bfloat16, and stays read-only."""
    if array.nbytes >= FRAME_BYTES:
        order = "F" if array.flags.fnc else "C"
        flat = np.ascontiguousarray(array.T if order == "F" else array).reshape(-1)
        memory: Any = flat.view(np.uint8)
        made_from = (pickle.PickleBuffer(memory), array.dtype, array.shape, order)
        return _array_in, made_from
    return NotImplemented if array.flags.writeable else array.__reduce__()


def _array_in(
    memory: Any, dtype: np.dtype[Any], shape: tuple[int, ...], order: Any
) -> Array:
    """Return the array that lives in a frame.

    Pickle hands out a read-only view where the sender's array was read-only; the frame
    under it is ours to write into.
    """
    frame: Any = memoryview(memory).obj
    return np.asarray(frame).view(dtype).reshape(shape, order=order)


# --- where in an object pickling fails ------------------------------------------------

Part = tuple[str, Any]
"""How to get to a part of an object, as one would write it, and the part."""


def _culprit(value: Any, error: Exception, limit_bytes: int) -> tuple[str, Exception]:
    """Return the way to the innermost part that cannot be pickled, and its error."""
    path, seen = "value", {id(value)}
    # Where pickle got too deep, no part is at fault, and parts go on for too long.
    while not isinstance(error, RecursionError):
        for name, part in _parts(value):
            failed = None if id(part) in seen else _failure(part, limit_bytes)
            if failed is not None:
                path, value, error = path + name, part, failed
                seen.add(id(part))
                break
        else:
            break
    return path, error


def _failure(part: Any, limit_bytes: int) -> Exception | None:
    """Return the error that pickling a part on its own raises, other than its size."""
    if type(part) not in ATOMS:
        try:
            _dump(part, limit_bytes)
        except InvalidArgumentError:
            pass
        except Exception as error:
            return error
    return None


def _parts(value: Any) -> Iterator[Part]:
    """Yield what pickle goes on to when it is given `value`."""
    if type(value) is dict:
        yield from _items(value.items())
    elif isinstance(value, (list, tuple)):
        yield from _elements(value)
    elif isinstance(value, (set, frozenset)):
        yield from (("{…}", element) for element in value)
    yield from _state(value)


def _state(value: Any) -> Iterator[Part]:
    """Yield attributes, items, and whatever else an object says it is made from."""
    try:
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = reduce(value) if reduce else value.__reduce_ex__(PROTOCOL)
    except Exception:  # it cannot tell: then it is the culprit itself
        return
    if not isinstance(reduced, tuple):  # the name of something global
        return
    _, arguments, state, elements, items = (*reduced, None, None, None)[:5]
    # With __slots__ it is a pair: the other attributes, or None, and the slots.
    for attributes in state if isinstance(state, tuple) else (state,):
        if isinstance(attributes, dict):
            yield from ((f".{name}", part) for name, part in attributes.items())
    yield from _elements(elements or ())
    yield from _items(items or ())
    for place, part in enumerate((arguments, state), start=1):
        yield f".__reduce_ex__({PROTOCOL})[{place}]", part


def _elements(parts: Iterable[Any]) -> Iterator[Part]:
    yield from ((f"[{place}]", part) for place, part in enumerate(parts))


def _items(items: Iterable[tuple[Any, Any]]) -> Iterator[Part]:
    for key, part in items:
        name = repr(key)[:NAME_LENGTH] if type(key) in ATOMS else type(key).__name__
        yield f"[{name}]", part
        yield f" key {name}", key


def _in_words(error: Exception) -> str:
    plain = isinstance(error, (pickle.PicklingError, TypeError))
    return str(error) if plain else f"{type(error).__name__}: {error}"
