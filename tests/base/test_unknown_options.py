"""An option nobody knows is a TypeError, and the sentence names the nearest one."""

import inspect

import pytest

import undamped
from undamped._base.errors import UnknownNameError
from undamped._base.options import options_of
from undamped._base.registry import gradients, models, solvers, tasks

REGISTRIES = {"model": models, "task": tasks, "solver": solvers, "gradient": gradients}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, entries in REGISTRIES.items() for name in entries]
)
def test_every_constructor_names_the_nearest_option(kind, name):
    member = REGISTRIES[kind][name]
    options = list(options_of(member))
    if not options:
        with pytest.raises(TypeError, match=f"{member.__name__} has no option 'tolerence'"):
            member(tolerence=1)
        return
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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tasks["digitz"], "Unknown task 'digitz'. Did you mean 'digits'?"),
        (lambda: undamped.nn.LSTM(4, 8, hiden=2), "LSTM has no option 'hiden'. Did you mean"),
        (
            lambda: undamped.build("unicornn", input_size=2, hidden_size=2, dt=-1),
            "UnICORNN.dt must be > 0 (or a list of such values), got -1.",
        ),
        (lambda: undamped.nn.GRU(2, "many"), "hidden_size must be an integer in [1, 10,000,000]"),
        (lambda: tasks.build("copy", delay=0), "Copy.delay must be an integer ≥ 1, got 0."),
    ],
)
def test_messages_are_one_sentence(call, message):
    with pytest.raises(undamped._base.errors.UndampedError) as caught:
        call()
    assert message in str(caught.value)
