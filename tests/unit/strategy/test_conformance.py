"""TensorFlow's cases of one process; those of two are in tests/launch."""

import copy
import re
from pathlib import Path

import pytest
from conformance import runner
from conformance.expressions import python_of

ROOT = Path(__file__).parents[3]
CASES = ROOT / "tests" / "conformance" / "cases"
ORACLE = runner.read([CASES / "oracle.jsonl"])


def listed() -> set[str]:
    """Return the ids in the last column of the table of differences."""
    text = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("|")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row[3])}


def verdicts(cases):
    return {outcome.id: (outcome.verdict, outcome.why) for outcome in runner.run(cases)}


def by_id(cases):
    return {case["id"]: case for case in cases}


def test_all_cases_pass_but_the_listed_differences():
    found = verdicts(ORACLE)
    failed = {
        name: why for name, (verdict, why) in found.items() if verdict == "failed"
    }
    different = listed() & found.keys()
    unexpected = {name: failed[name] for name in failed.keys() - different}
    assert not unexpected
    assert failed.keys() == different, "a case in docs/differences.md passes"
    skipped = sum(verdict == "skipped" for verdict, _ in found.values())
    assert skipped <= 1 < len(found) == 344


def test_ids_do_not_matter():
    some = ORACLE[::7]
    renamed = [{**case, "id": f"case {at}"} for at, case in enumerate(some)]
    before = [outcome.verdict for outcome in runner.run(some)]
    assert [outcome.verdict for outcome in runner.run(renamed)] == before
    assert before.count("passed") > len(some) // 2


def reductions():
    """Return the cases that reduce one float or integer a replica, as they pass."""
    found = [
        case
        for case in ORACLE
        if case["api"] == "Strategy.reduce"
        and "expected" in case
        and isinstance(case["inputs"].get("per_replica"), list)
    ]
    assert len(found) > 10
    return copy.deepcopy(found)


def scaled(value, by):
    if isinstance(value, list):
        return [scaled(item, by) for item in value]
    return value * by if isinstance(value, (int, float)) else value


def test_the_order_of_replicas_does_not_matter_to_a_reduction():
    for case in (cases := reductions()):
        case["inputs"]["per_replica"].reverse()
    assert {one.verdict for one in runner.run(cases)} == {"passed"}


@pytest.mark.parametrize("by", [3, -2])
def test_scaled_inputs_give_scaled_results(by):
    for case in (cases := reductions()):
        case["inputs"]["per_replica"] = scaled(case["inputs"]["per_replica"], by)
        case["expected"]["value"] = scaled(case["expected"]["value"], by)
    assert {one.verdict for one in runner.run(cases)} == {"passed"}


def test_a_wrong_expectation_is_a_failure():
    for case in (cases := reductions()):
        case["expected"]["shape"] = [*case["expected"]["shape"], 1]
    assert {one.verdict for one in runner.run(cases)} == {"failed"}
    unknown = {**cases[0], "api": "Strategy.unheard_of"}
    assert [one.verdict for one in runner.run([unknown])] == ["failed"]


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("3r", "3*r"),
        ("x^2", "x**2"),
        ("int32 r+1", "int32(r+1)"),
        ("[f32 r, f64 r]", "[float32(r), float64(r)]"),
        ("r+1 (tensor)", "r+1"),
        ("fill([2,r+1], r)", "fill([2,r+1], r)"),
        ("10**dev + g", "10**dev + g"),
    ],
)
def test_texts_of_values(text, python):
    assert python_of(text) == python
