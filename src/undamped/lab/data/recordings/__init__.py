"""Recordings of one's own: read, split, prepared, checked."""
