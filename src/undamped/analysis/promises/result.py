"""What a way of measuring a promise returns."""

from __future__ import annotations

Result = tuple[float, float, str]
"""The measured value, the limit it must not exceed, and what the value means."""
