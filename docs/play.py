"""A page of the documentation with a model that a reader can play with."""

import tempfile
from pathlib import Path

import torch
from torch.nn import functional as F

import undamped
from undamped._base.errors import OptionError
from undamped.lab.export import Subject
from undamped.lab.export.c.web import export_web

DISTRACTORS = 300
NAMES = ("red", "green", "blue")
MISSING = "<!doctype html><title>Flags</title><p>{reason}</p>\n"


def flags(path: Path) -> int:
    """Write a page with three flags that buttons set and reset; return its bytes."""
    run = undamped.load("flags-latch")
    labels = [
        " and ".join(name for bit, name in enumerate(NAMES) if at >> bit & 1) or "none"
        for at in range(8)
    ]

    def samples(symbols: torch.Tensor, marked: int) -> list[list[int]]:
        marks = torch.full((len(symbols), 1), marked)
        return torch.cat([F.one_hot(symbols, 6), marks], 1).tolist()

    buttons = {}
    for flag, name in enumerate(NAMES):
        for offset, verb in enumerate(("set", "reset")):
            buttons[f"{verb} {name}"] = samples(torch.tensor([2 * flag + offset]), 1)
    random = torch.Generator().manual_seed(0)
    noise = torch.randint(6, (DISTRACTORS,), generator=random)
    buttons[f"{DISTRACTORS} distractors"] = samples(noise, 0)
    model = run.model().float().eval()
    return export_web(Subject(model, classes=tuple(labels)), path, "Which flags are set?", buttons)


def page() -> str:
    """Return the text of the page, or the reason why it could not be made."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            flags(Path(folder) / "flags.html")
        except OptionError as error:
            return MISSING.format(reason=error)
        return (Path(folder) / "flags.html").read_text(encoding="utf-8")
