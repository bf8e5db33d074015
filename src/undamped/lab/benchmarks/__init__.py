"""Benchmarks: this library compared with its alternatives, in one run, as ratios."""
