"""Experiments whose pictures stand in the documentation, each with the command that made it."""
