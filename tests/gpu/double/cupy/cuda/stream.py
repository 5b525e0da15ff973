"""Streams, the current one of each thread and device, and events."""

import threading
from typing import Any

from cupy.cuda import runtime

_local = threading.local()


class _Current:
    """A thread's current streams, by device, and those to go back to."""

    def __init__(self) -> None:
        self.stacks = [[Stream.null] for _ in range(runtime.getDeviceCount())]
        self.current = [Stream.null for _ in self.stacks]
        self.devices: list[int] = []


def _current() -> _Current:
    if not hasattr(_local, "current"):
        _local.current = _Current()
    return _local.current  # type: ignore[no-any-return]


def get_current_stream(device_id: int = -1) -> Any:
    device = runtime.getDevice() if device_id == -1 else device_id
    return _current().current[device]


class Event:
    def __init__(
        self,
        block: bool = False,
        disable_timing: bool = False,
        interprocess: bool = False,
    ) -> None:
        self.ptr = 0
        if interprocess and not disable_timing:
            raise ValueError("Timing must be disabled for interprocess events")
        self.ptr = runtime.eventCreateWithFlags(block * 1 | disable_timing * 2)

    def __del__(self) -> None:
        if self.ptr and runtime is not None:
            runtime.eventDestroy(self.ptr)

    @property
    def done(self) -> bool:
        return runtime.eventQuery(self.ptr) == 0

    def record(self, stream: Any = None) -> None:
        target = get_current_stream() if stream is None else stream
        runtime.eventRecord(self.ptr, target.ptr)

    def synchronize(self) -> None:
        runtime.eventSynchronize(self.ptr)


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    return runtime.eventElapsedTime(start_event.ptr, end_event.ptr)


class _BaseStream:
    def __init__(self, ptr: int, device_id: int) -> None:
        self.ptr, self.device_id = ptr, device_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BaseStream) and self.ptr == other.ptr

    def __hash__(self) -> int:
        return self.ptr

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.ptr} (device {self.device_id})>"

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.ptr)

    def __enter__(self) -> Any:
        device, current = self._here(), _current()
        current.stacks[device].append(self)
        current.devices.append(device)
        current.current[device] = self
        return self

    def __exit__(self, *args: object) -> None:
        current = _current()
        device = current.devices.pop()
        current.stacks[device].pop()
        current.current[device] = current.stacks[device][-1]

    def use(self) -> Any:
        _current().current[self._here()] = self
        return self

    def _here(self) -> int:
        here = runtime.getDevice()
        if self.device_id not in (-1, here):
            raise RuntimeError(
                f"The device that the stream is created on ({self.device_id}) does not "
                f"match with the current device ({here})"
            )
        return here

    @property
    def done(self) -> bool:
        return runtime.streamQuery(self.ptr) == 0

    def synchronize(self) -> None:
        runtime.streamSynchronize(self.ptr)

    def launch_host_func(self, callback: Any, arg: Any) -> None:
        runtime.launchHostFunc(self.ptr, callback, arg)

    def record(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        runtime.eventRecord(event.ptr, self.ptr)
        return event

    def wait_event(self, event: Event) -> None:
        runtime.streamWaitEvent(self.ptr, event.ptr)

    @property
    def is_non_blocking(self) -> bool:
        return bool(runtime.streamGetFlags(self.ptr) & runtime.streamNonBlocking)

    @property
    def priority(self) -> int:
        return 0


class Stream(_BaseStream):
    null: "Stream"
    ptds: "Stream"

    def __init__(
        self,
        null: bool = False,
        non_blocking: bool = False,
        ptds: bool = False,
        priority: int | None = None,
    ) -> None:
        if null or ptds:
            super().__init__(0 if null else runtime.streamPerThread, -1)
            return
        ptr = runtime.streamCreateWithPriority(int(non_blocking), priority or 0)
        super().__init__(ptr, runtime.getDevice())

    def __del__(self) -> None:
        if getattr(self, "ptr", 0) > 2 and runtime is not None:
            runtime.streamDestroy(self.ptr)


class ExternalStream(_BaseStream):
    def __init__(self, ptr: int, device_id: int = -1) -> None:
        super().__init__(ptr, device_id)


Stream.null, Stream.ptds = Stream(null=True), Stream(ptds=True)
