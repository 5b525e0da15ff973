import json
from argparse import ArgumentTypeError
from importlib.resources import files

import numpy as np
import pytest

from collectives.bench.shapes import MODELS, read_shapes, tensors


@pytest.mark.parametrize(
    ("model", "count", "elements", "first", "last"),
    [
        ("resnet50", 161, 25_557_032, (64, 3, 7, 7), (1000,)),
        ("bert_base", 202, 109_514_298, (30522, 768), (768,)),
        ("gpt2_small", 148, 124_439_808, (50257, 768), (768,)),
        ("vit_base", 200, 86_567_656, (1, 1, 768), (1000,)),
    ],
)
def test_the_models(model, count, elements, first, last):
    listed = read_shapes(model)
    assert listed.name == model
    assert (len(listed.shapes), listed.elements) == (count, elements)
    assert (listed.shapes[0], listed.shapes[-1]) == (first, last)
    stated = json.loads(
        (files("collectives") / "tables" / "gradients" / f"{model}.json").read_text()
    )
    assert (stated["tensors"], stated["elements"]) == (count, elements)


def test_every_table_is_a_model():
    folder = files("collectives") / "tables" / "gradients"
    assert {path.name for path in folder.iterdir()} == {f"{m}.json" for m in MODELS}


@pytest.mark.parametrize(
    "text",
    [
        "[[2, 3], [], [4], [4]]",
        '{"shapes": [[2, 3], [], {"repeat": 2, "shapes": [[4]]}]}',
    ],
)
def test_a_file_of_ones_own(tmp_path, text):
    path = tmp_path / "shapes.json"
    path.write_text(text)
    listed = read_shapes(str(path))
    assert listed.shapes == ((2, 3), (), (4,), (4,))
    assert listed.elements == 15


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", "[[1.5]]", "[[-1]]", "[]", "[[0]]", '["ab"]', '[{"repeat": 2}]'],
)
def test_what_is_no_list_of_shapes_is_one_line_that_names_the_file(tmp_path, text):
    path = tmp_path / "shapes.json"
    path.write_text(text)
    with pytest.raises(ArgumentTypeError, match=r"shapes\.json") as caught:
        read_shapes(str(path))
    assert "\n" not in str(caught.value)


def test_tensors_follow_each_other():
    flat = np.arange(9)
    first, second, third = tensors(flat, ((2, 3), (), (2,)))
    assert first.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (second.shape, second.item()) == ((), 6)
    assert third.tolist() == [7, 8]
    assert all(np.shares_memory(flat, array) for array in (first, second, third))
