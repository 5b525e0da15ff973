"""Datasets and how they are shared out.

The cases write a dataset as text: `range(9)`, `arange(5).reshape(5,2)`,
`range(10).batch(4, drop_remainder)`, `2 files x 3 lines (100*file+line)`,
`one text file with lines 0..9`, `{'x': [0,1,2], 'y': [10,11,12]}`.
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import strategy as distribute
from conformance.case import Case, NotUnderstood, make_strategy
from conformance.encoding import encode, tensor
from conformance.expressions import evaluate
from strategy import data
from strategy.data.sharing import Share, batch_sizes, pieces_of
from strategy.data.stages import SHARD_HINT

_RANGE = re.compile(r"a?range\(([^()]+)\)(\.reshape\((?P<shape>[\d, ]+)\))?")
_BATCH = re.compile(r"\.batch\((\d+)(, *drop_remainder)?\)")
_FILES = re.compile(r"(\d+) files? x (\d+)")
_FILE = re.compile(r"one text file with lines (\d+)\.\.(\d+)")


def rows(text: str, folder: Path, task: int = 0) -> data.Dataset:
    """Return the elements that a text names, not in batches unless it says so."""
    if found := _FILES.match(text):
        files, lines = int(found[1]), int(found[2])
        return _lines(
            folder,
            [[100 * file + line for line in range(lines)] for file in range(files)],
        )
    if found := _FILE.match(text):
        return _lines(folder, [list(range(int(found[1]), int(found[2]) + 1))])
    if text.startswith("{"):
        columns = ast.literal_eval(text)
        # Features are floats and labels are not, which the text does not say.
        dtypes = {"x": np.float64}
        return data.Dataset.from_tensor_slices(
            {key: np.array(column, dtypes.get(key)) for key, column in columns.items()}
        )
    found = _RANGE.match(text)
    if not found:
        raise NotUnderstood(f"elements {text!r}")
    numbers = np.arange(evaluate(found[1], task=task))
    if found["shape"]:  # the number in arange() is that of the rows
        shape = [int(length) for length in found["shape"].split(",")]
        numbers = np.arange(np.prod(shape)).reshape(shape)
    dataset = data.Dataset.from_tensor_slices(numbers)
    for size, drop in _BATCH.findall(text):
        dataset = dataset.batch(int(size), drop_remainder=bool(drop))
    return dataset


def _lines(folder: Path, files: list[list[int]]) -> data.Dataset:
    paths = []
    for number, lines in enumerate(files):
        paths.append(folder / f"{number}.txt")
        paths[-1].write_text("".join(f"{line}\n" for line in lines))
    return data.Dataset.from_text(paths).map(np.int64)


@contextmanager
def dataset_of(case: Case) -> Iterator[data.Dataset]:
    """Make the dataset of a case, batched, with its policy; its files go at the end."""
    given = case.inputs
    with tempfile.TemporaryDirectory() as folder:
        dataset = rows(given["elements"], Path(folder))
        policy = data.AutoShardPolicy[given.get("policy", "AUTO")]
        if policy is data.AutoShardPolicy.HINT:
            dataset = dataset.shard(SHARD_HINT, SHARD_HINT)
        if given.get("global_batch"):
            dataset = dataset.batch(
                given["global_batch"], bool(given.get("drop_remainder"))
            )
        options = data.Options()
        options.experimental_distribute.auto_shard_policy = policy
        yield dataset.with_options(options)


def shape_and_value(array: Any) -> dict[str, Any]:
    """Return an array as most of the cases write one of a step."""
    return {key: value for key, value in tensor(array).items() if key != "dtype"}


def components(strategy: Any, step: Any) -> list[Any]:
    """Return each local replica's part of a step as shape and value."""
    return [shape_and_value(part) for part in strategy.experimental_local_results(step)]


def spec_text(spec: Any) -> str:
    """Return a spec as TensorFlow writes it."""
    parts = [
        f"TensorSpec(shape={part.shape}, dtype=tf.{part.dtype}, name=None)"
        for part in spec.values
    ]
    return f"PerReplicaSpec({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _distribute(case: Case, write: Any) -> Any:
    options = case.table(
        "options",
        {
            None: None,
            "PER_REPLICA": distribute.InputOptions(
                experimental_replication_mode=distribute.InputReplicationMode.PER_REPLICA
            ),
        },
    )
    if options is not None:
        case.inputs.setdefault("elements", "range(4)")
        case.inputs.setdefault("global_batch", 2)
    with dataset_of(case) as dataset:
        shared = case.strategy.experimental_distribute_dataset(dataset, options)
        return write(case.strategy, shared, dataset)


def _as_shapes(case: Case) -> Any:
    return _distribute(
        case, lambda strategy, shared, _: [components(strategy, x) for x in shared]
    )


def _as_values(case: Case) -> Any:
    return _distribute(
        case,
        lambda strategy, shared, _: [
            encode(strategy.experimental_local_results(step)) for step in shared
        ],
    )


def _as_itself(case: Case) -> Any:
    return _distribute(
        case,
        lambda _, shared, dataset: {
            "same_type": type(shared) is type(dataset),
            "steps": [tensor(step) for step in shared],
        },
    )


def _as_worker(case: Case) -> Any:
    return _distribute(
        case,
        lambda _, shared, dataset: {
            "spec": spec_text(shared.element_spec),
            "steps": [step.values[0].tolist() for step in shared],
        },
    )


OPTIONS = {
    None: None,
    "PER_REPLICA, fetch_to_device=False, place_on_device=True": distribute.InputOptions(
        False, distribute.InputReplicationMode.PER_REPLICA, True
    ),
    "place_dataset_on_device without PER_REPLICA": distribute.InputOptions(
        False, experimental_place_dataset_on_device=True
    ),
}


def _from_function(case: Case, write: Any) -> Any:
    options = case.table("options", OPTIONS)
    contexts = []

    def make(context: Any) -> data.Dataset:
        contexts.append(
            [
                context.num_input_pipelines,
                context.input_pipeline_id,
                context.num_replicas_in_sync,
            ]
        )
        if options is not None:  # the cases do not say what it makes
            first = 10 * context.input_pipeline_id
            return data.Dataset.range(first, first + 2).batch(1)
        return rows(case.inputs["elements"], Path("unused"), case.rank)

    shared = case.strategy.distribute_datasets_from_function(make, options)
    return write(case.strategy, shared, contexts)


def _function_as_shapes(case: Case) -> Any:
    return _from_function(
        case,
        lambda strategy, shared, contexts: {
            "input_contexts": contexts,
            "steps": [components(strategy, step) for step in shared],
        },
    )


def _function_as_values(case: Case) -> Any:
    return _from_function(
        case,
        lambda strategy, shared, contexts: {
            "input_contexts": contexts,
            "steps": [encode(strategy.experimental_local_results(x)) for x in shared],
        },
    )


def _function_steps(case: Case) -> Any:
    return _from_function(
        case,
        lambda strategy, shared, _: [
            encode(strategy.experimental_local_results(step)) for step in shared
        ],
    )


def _function_as_worker(case: Case) -> Any:
    return _from_function(
        case,
        lambda strategy, shared, contexts: {
            "input_contexts": contexts,
            "steps": [step.values[0].tolist() for step in shared],
        },
    )


def _pieces(case: Case) -> Any:
    given = case.inputs
    workers, local = given["num_workers"], given["replicas_per_worker"]
    with dataset_of(case) as dataset:
        return [
            [
                shape_and_value(piece)
                for piece in pieces_of(
                    dataset, Share(workers, worker, workers * local), 0
                )
            ]
            for worker in range(workers)
        ]


def _batch_sizes(case: Case) -> Any:
    given = case.inputs
    workers = given["num_workers"]
    replicas = workers * given["replicas_per_worker"]
    return [
        np.array(
            batch_sizes(given["global_batch"], Share(workers, worker, replicas)),
            np.int64,
        )
        for worker in range(workers)
    ]


def _element_spec(case: Case) -> Any:
    with dataset_of(case) as dataset:
        shared = case.strategy.experimental_distribute_dataset(dataset)
        return spec_text(shared.element_spec)


def _optionals(case: Case) -> Any:
    with dataset_of(case) as dataset:
        steps = iter(case.strategy.experimental_distribute_dataset(dataset))
        results: list[Any] = []
        while not results or results[-1][0]:
            found = steps.get_next_as_optional()
            value = found.get_value() if found.has_value() else None
            local = case.strategy.experimental_local_results
            results.append([found.has_value(), None if value is None else local(value)])
        return results


def _get_next(case: Case) -> Any:
    case.table("after", {"exhausted": None})
    strategy = make_strategy(case.strategy_spec)
    steps = iter(strategy.experimental_distribute_dataset([np.arange(2)]))
    steps.get_next()
    return steps.get_next()


def _input_context(case: Case) -> Any:
    context = distribute.InputContext(
        num_replicas_in_sync=case.inputs["num_replicas_in_sync"]
    )
    return context.get_per_replica_batch_size(case.inputs["global"])


def _input_options(case: Case) -> Any:
    return [str(field) for field in distribute.InputOptions(**case.inputs)]


CASES = {
    "experimental_distribute_dataset": [_as_shapes, _as_values, _as_itself, _as_worker],
    "distribute_datasets_from_function": [
        _function_as_shapes,
        _function_as_values,
        _function_steps,
        _function_as_worker,
    ],
    "auto_shard+rebatch": _pieces,
    "data.experimental batch_sizes_for_worker": _batch_sizes,
    "DistributedDataset.element_spec": _element_spec,
    "DistributedIterator.get_next": _get_next,
    "DistributedIterator.get_next_as_optional": _optionals,
    "InputContext.get_per_replica_batch_size": _input_context,
    "InputOptions": _input_options,
}
