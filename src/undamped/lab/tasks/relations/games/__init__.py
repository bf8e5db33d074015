"""Relational games: objects on a grid of nine cells, and a relation that holds or does not."""
