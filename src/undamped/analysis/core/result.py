"""What every instrument returns: a small frozen record that describes and draws itself.

A record says its frame (`layout`), its lines (`traces`), what was found in words (`sentence`) and
in numbers (`rows`), and everything for JSON (`to_dict`). Page, plotly figure, picture file and
terminal are made of these five and know no instrument by name.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch

from undamped._base.options import Option, options_of
from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.style import Style, Trace

if TYPE_CHECKING:
    from undamped.analysis.core.probe import Probe


@dataclass(frozen=True)
class Record:
    """Numbers with names that can be written as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain numbers, lists and text, ready for JSON."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True)
class Judgement:
    """A verdict on a model: one sentence without a full stop, and whether it is good news.

    A page opens with that of gradient flow, or where there is none with the first that is given.
    """

    verdict: str
    tone: Literal["good", "bad", "neutral"] = "neutral"


@dataclass(frozen=True)
class Result(Record, ABC):
    """Base of the instruments' results.

    A class that is entered in the registry of instruments says which `question` it answers, has
    a `measure`, and is then found by command line, page, JSON, help and site.
    """

    question: ClassVar[str] = ""
    """What the instrument answers, as a person would ask."""
    place: ClassVar[int] = 50
    """Where it stands on a page; small numbers come first."""
    function: ClassVar[str] = ""
    """The function in the same file that measures, if it is not called as the instrument is."""
    on_request: ClassVar[bool] = False
    """Whether it is measured only when it is asked for by name."""
    of_motion: ClassVar[bool] = False
    """Whether it also has something to say about models of systems that move."""
    of_answers: ClassVar[bool] = False
    """Whether it applies to models that no gradient trains: it looks at their answers alone, or
    at what they promise."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Headings of `rows`."""

    @classmethod
    def declared_options(cls) -> dict[str, Option]:
        """Return what the function that measures takes, if there is one beside the class."""
        name = cls.function or instruments.name_of(cls) or ""
        function = getattr(sys.modules[cls.__module__], name, None)
        return {} if function is None else options_of(function)

    @classmethod
    def measure(cls, probe: Probe) -> Result:
        """Measure a model; raise `InapplicableError` with the reason where there is nothing to see.

        Only instruments that are entered in the registry have to be able to.

        Args:
            probe: The model and what is known about it.
        """
        raise NotImplementedError

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """The frame of the picture."""

    @abstractmethod
    def traces(self, style: Style) -> list[Trace]:
        """Return the lines of the picture.

        Args:
            style: The place of this result in the picture.
        """

    @property
    def sentence(self) -> str:
        """What was found, in one sentence; empty if there is only the picture."""
        return ""

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """What was found as a table, one text for each of `columns`; empty if there is none."""
        return []

    @property
    def judgement(self) -> Judgement | None:
        """What this says about the model as a whole, where it can judge it; see `Judgement`."""
        return None

    def plot(self) -> Any:
        """Draw the result; return a plotly figure."""
        return figure_of({getattr(self, "name", ""): self})

    def picture(self, path: str | Path) -> None:
        """Draw the result into a .png, .svg or .pdf file.

        Args:
            path: The file to write.
        """
        from undamped.analysis.core.pictures import draw

        draw({getattr(self, "name", ""): self}, Path(path))


def figure_of(results: Mapping[str, Result]) -> Any:
    """Draw results of one instrument into one plotly figure.

    Args:
        results: What was found, by the name of the model.
    """
    from undamped.analysis.core.figures import new_figure

    frame = frame_of(results)
    layout = frame.layout
    figure = new_figure(frame.title, layout.x, layout.y, frame.caption)
    figure.add_traces(frame.traces)
    figure.update_layout(showlegend=layout.legend, **layout.axes(frame.traces))
    return figure


@dataclass(frozen=True)
class Frame:
    """A picture before it is drawn: what stands around it, and its traces."""

    title: str
    caption: str
    layout: Layout
    traces: list[Trace]


def frame_of(results: Mapping[str, Result]) -> Frame:
    """Put results of one instrument into one frame: one model in detail, several side by side."""
    (first, *others) = found = list(results.items())
    layout = first[1].layout
    title, caption = layout.title, layout.caption
    if others:
        drawn = [result.traces(Style(i, name)) for i, (name, result) in enumerate(found)]
    else:
        drawn = [first[1].traces(Style())]
        title = f"{title}: {first[0]}" if first[0] else title
        caption = first[1].sentence or caption
    return Frame(title, caption, layout, [*layout.background, *(t for part in drawn for t in part)])


def plain(value: Any) -> Any:
    """Turn a value into what JSON knows; complex numbers become [real, imaginary].

    A number that is not finite becomes null, since JSON has no word for it.
    """
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray | np.generic):
        if np.iscomplexobj(value):
            value = np.stack([value.real, value.imag], axis=-1)
        value = value.tolist()
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    if isinstance(value, complex):
        return [value.real, value.imag]
    return value
