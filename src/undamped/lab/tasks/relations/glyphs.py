"""One hundred glyphs: symbols of DejaVu Sans, the font that matplotlib ships.

The list is fixed. It was selected from U+2200 to U+27BF: blank, nearly black and nearly white
glyphs were left out, then glyphs closer than `LEAST_DISTANCE` to an earlier one, and the remaining
ones that are furthest from each other were used.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undamped._base.packages import require

GLYPHS = (
    "∀∃∅∆∉∌∏∑∓∙∭≤≦≨≳≷≸⊞⊪⊴⊵⋈⋒⋓⋕⋪⋫⋵⋸⋽⌂⌦⌧⍳"
    "⍺⍽⏏⏨━┏╤╦▀▂▅▇▉▌▐▒▓▖▗▚▞▣▲▷▼◅◈●◒◓◚◞◟◢"
    "◣◤◥◩◪◯◸◹◺◿☌☢☬☸♍♐⚄⚖⚢⚤⚦⚩⚳⛃✉✜✪✰✲✿➀➊"
)
LEAST_DISTANCE = 11.0
"""The least distance of two glyphs, in one channel; that of black and white is 32."""
SIDE = 32
"""Rows and columns of a glyph."""
MARGIN = 3
_FONT_SIZE = 208  # rendered large and averaged, so that hinting has no effect


@cache
def glyph_images(size: int = SIDE - 2 * MARGIN) -> Tensor:
    """Return the glyphs, black on white: (100, 3, 32, 32) with pixels between 0 and 1.

    Args:
        size: Rows or columns that a glyph covers, whichever is more.
    """
    require("glyphs", "PIL", "matplotlib")
    return torch.from_numpy(np.stack([_render(glyph, size) for glyph in GLYPHS]))


def _render(glyph: str, size: int) -> NDArray[np.float32]:
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(_font(), _FONT_SIZE, layout_engine=ImageFont.Layout.BASIC)
    x0, y0, x1, y1 = map(int, font.getbbox(glyph))
    large = Image.new("L", (x1 - x0, y1 - y0), 255)
    ImageDraw.Draw(large).text((-x0, -y0), glyph, font=font, fill=0)
    scale = size / max(large.size)
    fitted = tuple(max(1, round(side * scale)) for side in large.size)
    image = Image.new("L", (SIDE, SIDE), 255)
    corner = ((SIDE - fitted[0]) // 2, (SIDE - fitted[1]) // 2)
    image.paste(large.resize(fitted, Image.Resampling.BOX), corner)  # type: ignore[arg-type]
    grey = np.asarray(image, dtype=np.float32) / np.float32(255)
    return np.stack([grey, grey, grey])


def _font() -> str:
    import matplotlib

    return str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
