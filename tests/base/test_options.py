"""Options: types, ranges, nearest names, text from a command line."""

from collections.abc import Sequence
from typing import Annotated, Literal

import pytest

import undamped
from undamped._base.docstrings import documented_arguments, sections
from undamped._base.errors import OptionError, UnknownNameError
from undamped._base.options import (
    PositiveFloat,
    PositiveInt,
    Range,
    check,
    convert,
    nearest,
    options_of,
)
from undamped._base.registry import Registry, models, tasks


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (int, "128", 128),
        (int, "1e3", 1000),
        (int, "-7", -7),
        (float, "1e-3", 0.001),
        (float, "3", 3.0),
        (bool, "true", True),
        (bool, "off", False),
        (str, "123", "123"),
        (Sequence[float], "0.1,0.2", (0.1, 0.2)),
        (Sequence[int], "[1, 2]", (1, 2)),
        (float | Sequence[float], "0.1", 0.1),
        (float | Sequence[float], "0.1,0.3", (0.1, 0.3)),
        (int | None, "none", None),
        (Literal["tanh", "relu"], "relu", "relu"),
    ],
)
def test_text_is_read_as_the_annotation_wants(annotation, text, value):
    assert convert(annotation, text, "option", text=True) == value


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, "x"),
        (int, 1.5),
        (int, True),
        (int, None),
        (float, "many"),
        (float, float("nan")),
        (float, float("inf")),
        (bool, "maybe"),
        (bool, 1),
        (str, 3),
        (PositiveInt, 0),
        (PositiveFloat, 0.0),
        (Annotated[int, Range(low=2)], 1),
        (Literal["tanh", "relu"], "gelu"),
        (Sequence[float], "a,b"),
        (Sequence[str] | None, ""),
        (int | None, "x"),
    ],
)
def test_wrong_values_are_refused_in_one_sentence(annotation, value):
    with pytest.raises(OptionError) as caught:
        convert(annotation, value, "model.option", text=True)
    message = str(caught.value)
    assert message.startswith("model.option must be ")
    assert ", got " in message
    assert "\n" not in message


def test_strings_are_not_numbers_from_python():
    with pytest.raises(OptionError):
        convert(int, "128", "hidden_size")
    with pytest.raises(OptionError):
        convert(float, "0.1", "dt")


def test_a_range_says_what_it_accepts():
    assert str(Range(low=0, high=1, open_high=True)) == "in [0, 1)"
    assert str(Range(low=0, open_low=True)) == "> 0"
    assert 1 not in Range(low=0, high=1, open_high=True)
    assert 0 not in Range(low=0, open_low=True)


def test_unknown_names_suggest_the_nearest():
    assert nearest("unicorn", models) == "unicornn"
    with pytest.raises(UnknownNameError, match="Did you mean 'unicornn'"):
        undamped.build("UnICORN", input_size=1, hidden_size=1)
    with pytest.raises(UnknownNameError, match="Did you mean 'hidden_size'"):
        undamped.build("lstm", input_size=1, hiden_size=1)
    with pytest.raises(UnknownNameError, match=r"Choose one of: .*copy"):
        tasks["zzzzzzz"]


def test_a_name_is_entered_once():
    registry: Registry[type] = Registry("thing", {})
    registry.register("a")(int)
    with pytest.raises(OptionError, match="the name is taken"):
        registry.register("a")(float)
    assert registry.name_of(int) == "a"
    assert registry.name_of(str) is None


@pytest.mark.parametrize("registry", [models, tasks], ids=["models", "tasks"])
def test_every_member_documents_itself(registry):
    for name in registry:
        member = registry[name]
        text = sections(member)
        assert text[""], name
        assert text.get("Reference"), f"{name} has no reference"
        documented = documented_arguments(member)
        for option in options_of(member).values():
            about = option.description or documented.get(option.name)
            assert about, f"{name}.{option.name} is not described"


def test_check_names_the_owner():
    with pytest.raises(OptionError, match=r"unicornn\.dt must be > 0"):
        check("unicornn", models["unicornn"], {"dt": -1})


@pytest.mark.parametrize("size", [-1, 0, 2.5, "many", None])
def test_networks_check_their_options_too(size):
    with pytest.raises(OptionError):
        undamped.nn.UnICORNN(3, size)


def test_layers_that_do_not_fit_into_memory_are_refused_before_they_are_built(monkeypatch):
    monkeypatch.setattr("undamped._base.memory.memory_available", lambda: 10_000)
    undamped.nn.GRU(3, 4, num_layers=3)
    with pytest.raises(OptionError, match="GRU with 9,000 layers needs"):
        undamped.nn.GRU(3, 4, num_layers=9_000)


def test_one_dt_for_each_layer():
    net = undamped.nn.UnICORNN(3, 4, num_layers=2, dt=[0.1, 0.3])
    assert [net.cell(0).dt, net.cell(1).dt] == [0.1, 0.3]
    with pytest.raises(OptionError, match="one per layer"):
        undamped.nn.UnICORNN(3, 4, num_layers=3, dt=[0.1, 0.3])


def test_dropout_wants_two_layers():
    with pytest.warns(UserWarning, match="num_layers"):  # as torch does, nothing is dropped
        undamped.nn.LSTM(3, 4, dropout=0.5)
