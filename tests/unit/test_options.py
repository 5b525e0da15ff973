"""Options: their defaults, their checks, and the variables that set them."""

from dataclasses import FrozenInstanceError, fields

import pytest

from collectives import InvalidArgumentError, Options

READ = [
    ("RINGFOLD_TIMEOUT_S", "2.5", "timeout_s", 2.5),
    ("RINGFOLD_TIMEOUT_S", "7", "timeout_s", 7.0),
    ("RINGFOLD_ALGORITHM", "ring", "algorithm", "ring"),
    ("RINGFOLD_CHECK", "off", "check", "off"),
    ("RINGFOLD_SEGMENT_BYTES", "4096", "segment_bytes", 4096),
    ("RINGFOLD_ABORT", "0", "abort", False),
    ("RINGFOLD_ABORT", "1", "abort", True),
    ("RINGFOLD_ABORT", "False", "abort", False),
    ("RINGFOLD_ABORT", "TRUE", "abort", True),
]


@pytest.mark.parametrize(("variable", "text", "field", "value"), READ)
def test_a_variable_sets_its_field_in_the_type_of_the_default(
    variable, text, field, value
):
    options = Options.from_environment({variable: text, "HOME": "/"})
    assert getattr(options, field) == value
    assert type(getattr(options, field)) is type(getattr(Options(), field))


@pytest.mark.parametrize("field", [field.name for field in fields(Options)])
def test_every_field_has_its_variable(field):
    """A field's own default, written out, is read back as itself."""
    default = getattr(Options(), field)
    variable = f"RINGFOLD_{field.upper()}"
    assert Options.from_environment({variable: str(default)}) == Options()


def test_no_variables_give_the_defaults():
    assert Options.from_environment({"PATH": "/bin"}) == Options()
    assert Options() == Options(timeout_s=600.0, algorithm="auto", check="on")


def test_what_is_given_wins_over_variables():
    environ = {"RINGFOLD_TIMEOUT_S": "5", "RINGFOLD_CHECK": "off"}
    options = Options.from_environment(environ, timeout_s=1.5)
    assert (options.timeout_s, options.check) == (1.5, "off")


def test_the_process_environment_is_read(monkeypatch):
    monkeypatch.setenv("RINGFOLD_TIMEOUT_S", "12.5")
    assert Options.from_environment().timeout_s == 12.5


def test_an_unknown_variable_is_an_error_that_lists_the_known():
    with pytest.raises(InvalidArgumentError) as caught:
        Options.from_environment({"RINGFOLD_TIMEOUT": "5"})
    text = str(caught.value)
    assert text.startswith("RINGFOLD_TIMEOUT is not an option")
    assert "\n" not in text
    for field in fields(Options):
        assert f"RINGFOLD_{field.name.upper()}" in text


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("RINGFOLD_TIMEOUT_S", "soon"),
        ("RINGFOLD_TIMEOUT_S", ""),
        ("RINGFOLD_TIMEOUT_S", "nan"),
        ("RINGFOLD_TIMEOUT_S", "0"),
        ("RINGFOLD_TIMEOUT_S", "-1"),
        ("RINGFOLD_SEGMENT_BYTES", "1M"),
        ("RINGFOLD_SEGMENT_BYTES", "1.5"),
        ("RINGFOLD_SEGMENT_BYTES", "63"),
        ("RINGFOLD_SEGMENT_BYTES", "-4096"),
        ("RINGFOLD_ABORT", "no"),
        ("RINGFOLD_CHECK", "maybe"),
    ],
)
def test_a_bad_value_is_refused_with_what_was_given_and_wanted(variable, text):
    with pytest.raises(InvalidArgumentError) as caught:
        Options.from_environment({variable: text})
    message = str(caught.value)
    assert variable.removeprefix("RINGFOLD_").lower() in message.lower()
    assert text in message
    assert "wanted" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"timeout_s": "5"}, "timeout_s is '5'; wanted float of at least 0.001"),
        ({"timeout": 5}, "timeout is not an option; known: timeout_s algorithm table"),
        ({"deterministic": "yes"}, "deterministic is 'yes'; wanted bool"),
        ({"algorithm": ["ring"]}, "algorithm is ['ring']; wanted str"),
        ({"trace": 5}, "trace is 5; wanted str"),
        ({"check": ["on"]}, "check is ['on']; wanted str"),
    ],
)
def test_odd_changes_are_refused(changes, text):
    with pytest.raises(InvalidArgumentError) as caught:
        Options().changed(**changes)
    assert text in str(caught.value)


def test_options_cannot_be_changed_in_place_or_given_by_position():
    with pytest.raises(FrozenInstanceError):
        Options().timeout_s = 1.0
    with pytest.raises(TypeError):
        Options(5.0)
