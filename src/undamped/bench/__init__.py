"""Benchmarks: ours beside what a user would otherwise pick, in one run, as ratios."""

from undamped.packages import require

require("undamped.bench", "matplotlib", "rich")
