"""Recordings of the user: read, split, prepared, checked."""
