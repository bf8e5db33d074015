"""Scans over time: a plain reference and faster ways that agree with it."""
