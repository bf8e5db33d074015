"""An option nobody knows is a TypeError, and the sentence names the nearest one."""

import pytest

import undamped
from undamped._base.errors import UnknownNameError
from undamped._base.options import options_of
from undamped._base.registry import (
    benchmarks,
    experiments,
    gradients,
    instruments,
    models,
    solvers,
    tasks,
)

REGISTRIES = {
    registry.kind: registry
    for registry in (models, tasks, solvers, gradients, instruments, experiments, benchmarks)
}
ENTRIES = [(kind, name) for kind, registry in REGISTRIES.items() for name in registry]


def misspelt(options):
    """Return the longest name without its last letter but one, and the name."""
    nearest = max(options, key=len)
    return (nearest[:-2] + nearest[-1] if len(nearest) > 4 else f"{nearest}x"), nearest


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_every_entry_names_the_nearest_option(kind, name):
    """Without required options, too: Python alone would name the first one that is missing."""
    registry = REGISTRIES[kind]
    entry, options = registry[name], list(options_of(registry[name]))
    calls = [lambda **typo: registry.build(name, **typo)]
    if registry.checked:
        calls.append(lambda **typo: entry(**typo))
    if kind == "model":
        calls.append(lambda **typo: undamped.build(name, **typo))
    for call in calls:
        if options:
            wrong, right = misspelt(options)
            with pytest.raises(TypeError, match=f"Did you mean '{right}'"):
                call(**{wrong: 1})
        else:
            with pytest.raises(TypeError, match="has no option 'tolerence'"):
                call(tolerence=1)


@pytest.mark.parametrize("name", [name for name in models if options_of(models[name])])
def test_a_misspelt_required_option_is_named(name):
    required = [option.name for option in options_of(models[name]).values() if option.required]
    for option in required:
        with pytest.raises(TypeError, match=f"Did you mean '{option}'"):
            undamped.build(name, **{misspelt([option])[0]: 1})


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
