"""Instruments that need a task: confusion, generalisation, motion of physical systems."""
