"""Settings that a paper prints, by name."""

import pytest

import undamped
from undamped._base.errors import OptionError, UnknownNameError
from undamped.lab.cli.settings import read_settings

WORDS = ["ucr", "linoss", "recipe=linoss-paper", "task.dataset=EigenWorms"]


def test_the_papers_settings_lie_under_what_is_said():
    settings = read_settings(WORDS)
    options = settings.model_options("linoss")
    assert options["block"] == "batch-norm" and options["oscillators"] == 64
    assert (options["num_layers"], options["hidden_size"], options["dropout"]) == (2, 128, 0.05)
    assert options.pop("readout") == "mean"
    net = undamped.build("linoss", input_size=6, **options)
    assert sum(p.numel() for p in net.parameters()) == 896 + 2 * (128 * 128 * 4 + 256 + 128 + 128)
    train = settings.train_options()
    assert (train["learning_rate"], train["batch_size"], train["steps"]) == (1e-3, 4, 100_000)
    assert settings.task_options("ucr")["split"] == "stratified"
    said = read_settings([*WORDS, "model.hidden_size=32", "train.minutes=1", "task.split=lem"])
    assert said.model_options("linoss")["hidden_size"] == 32
    assert "steps" not in said.train_options() and said.train_options()["minutes"] == 1
    assert said.task_options("ucr")["split"] == "lem"
    by_turns = read_settings([*WORDS[:3], "task.dataset=SelfRegulationSCP2"])
    assert by_turns.model_options("linoss")["method"] == "imex"


def test_what_the_paper_does_not_print_is_refused():
    with pytest.raises(
        OptionError, match=r"has settings for the data sets .* got task\.dataset=GunPoint"
    ):
        read_settings([*WORDS[:3], "task.dataset=GunPoint"])
    with pytest.raises(OptionError, match="is for the task ucr and the model linoss"):
        read_settings(["digits", "lstm", "recipe=linoss-paper"])
    with pytest.raises(UnknownNameError, match="Did you mean 'linoss-paper'"):
        read_settings(["ucr", "linoss", "recipe=linoss-papers"])
