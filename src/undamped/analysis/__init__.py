"""Instruments: they read any module and never train it."""
