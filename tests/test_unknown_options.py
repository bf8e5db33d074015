"""An option nobody knows is a TypeError, and the sentence names the nearest one."""

import inspect

import pytest

import undamped
from undamped._base.errors import UnknownNameError
from undamped._base.options import options_of
from undamped._base.registry import models, tasks


def member_of(name):
    return models[name] if name in models else tasks[name]


@pytest.mark.parametrize("name", [*models, *tasks])
def test_every_constructor_names_the_option_that_was_meant(name):
    member = member_of(name)
    options = list(options_of(member))
    if not options:
        pytest.skip("it has no options")
    meant = max(options, key=len)
    wrong = meant[:-2] + meant[-1] if len(meant) > 4 else f"{meant}x"
    required = {
        p.name: member.example_shape() if p.name == "shape" else 2
        for p in inspect.signature(member).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    with pytest.raises(TypeError, match=f"Did you mean '{meant}'"):
        member(**required, **{wrong: 1})


def test_a_word_of_a_name_is_near_it():
    with pytest.raises(TypeError, match="Did you mean 'hidden_size'"):
        undamped.nn.LSTM(4, 8, hiden=2)
    with pytest.raises(TypeError, match="Did you mean 'hidden_size'"):
        undamped.build("lstm", input_size=4, hiden_size=2)
    with pytest.raises(UnknownNameError):  # which it is too
        undamped.models.HNN(2, hiden_size=3)
