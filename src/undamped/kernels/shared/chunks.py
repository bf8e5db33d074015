"""How many time steps are handled at once.

A chunk of steps goes through all layers before the next one starts. It should be long enough
for large matrix products and few calls, and short enough for what the backward pass keeps of a
chunk to stay in the last cache.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

SHORTEST, LONGEST = 16, 1024
FALLBACK = 8 << 20
SHARE = 0.75  # of the last-level cache; the rest is for weights and whoever else runs
KEPT_BYTES = 64 << 20  # for values of tanh that spare a second product, whatever the length


@cache
def cache_bytes() -> int:
    """Return the size of the last-level cache in bytes, 8 MB where the system does not say."""
    sizes = []
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = entry.read_text().strip()
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:])
        if unit and text[:-1].isdigit():
            sizes.append(int(text[:-1]) * unit)
    return max(sizes, default=FALLBACK)


def chunk_length(steps: int, columns: int, layers: int, item_size: int) -> int:
    """Choose how many steps make a chunk.

    Args:
        steps: Length of the sequence.
        columns: Batch × hidden units.
        layers: Number of layers.
        item_size: Bytes of a number.
    """
    # Each layer keeps positions, tanh and a gradient; one more buffer is shared.
    per_step = max(1, columns * item_size * (3 * layers + 1))
    fitting = int(cache_bytes() * SHARE) // per_step
    fitting -= fitting % SHORTEST  # whole multiples, see `products`
    return min(steps, max(SHORTEST, min(LONGEST, fitting)))


def kept_chunks(chunk: int, columns: int, layers: int, item_size: int) -> int:
    """Return of how many chunks the values of tanh may be kept.

    Args:
        chunk: Steps of a chunk.
        columns: Batch × hidden units.
        layers: Layers whose values are kept.
        item_size: Bytes of a number.
    """
    return KEPT_BYTES // (chunk * columns * layers * item_size) if layers else 0


def ranges(steps: int, chunk: int) -> list[tuple[int, int]]:
    """Return the first and the past-the-last step of each chunk."""
    return [(start, min(start + chunk, steps)) for start in range(0, steps, chunk)]
