"""Benchmarks: ours beside what a user would otherwise pick, in one run, as ratios."""
