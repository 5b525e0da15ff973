"""Options and what follows from them alone."""

from __future__ import annotations

from typing import Any

import numpy as np

import strategy as distribute
from conformance.case import Case
from strategy.packs import group_by_size


def _fields(options: Any) -> list[Any]:
    name = options.implementation.value
    return [options.bytes_per_pack, options.timeout_seconds, name]


def _options(case: Case) -> Any:
    return _fields(distribute.CommunicationOptions(**case.inputs))


def _hints(case: Case) -> Any:
    options = distribute.experimental.CollectiveHints(**case.inputs)
    assert type(options) is distribute.CommunicationOptions
    return ["Options", _fields(options)]  # the class's name in TensorFlow


def _merge(case: Case) -> Any:
    base, *others = (
        distribute.CommunicationOptions(*fields) for fields in case.inputs.values()
    )
    return [_fields(base.merge(other)) for other in (*others, None)]


def _group_by_size(case: Case) -> Any:
    counts, dtypes = case.inputs["element_counts"], case.inputs["dtypes"]
    if isinstance(dtypes, str):
        dtypes = [dtypes] * len(counts)
    arrays = [np.zeros(*each) for each in zip(counts, dtypes, strict=True)]
    place = {id(array): index for index, array in enumerate(arrays)}
    packs = group_by_size(arrays, case.inputs["bytes_per_pack"])
    return [[place[id(array)] for array in pack] for pack in packs]


CASES = {
    "CommunicationOptions": _options,
    "CommunicationOptions.merge": _merge,
    "CollectiveHints": _hints,
    "group_by_size": _group_by_size,
}
