"""Experiments whose pictures stand in the documentation, each with the command that made it."""

from undamped._base.packages import require

require("undamped.lab.papers", "lightning", "matplotlib", "rich")
