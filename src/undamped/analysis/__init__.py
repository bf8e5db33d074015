"""Instruments: they read any module, they never train."""
