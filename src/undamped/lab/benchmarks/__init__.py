"""Benchmarks: ours beside what a user would otherwise pick, in one run, as ratios."""

from undamped._base.packages import require

require("undamped.lab.benchmarks", "matplotlib", "rich")
