"""Instruments: they read any model and never train one."""
