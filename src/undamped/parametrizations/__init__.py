"""Matrices kept in a set, and ways to start inside it."""
