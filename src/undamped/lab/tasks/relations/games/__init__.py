"""Relational games: a relation holds among objects on a grid of nine cells, or does not."""
