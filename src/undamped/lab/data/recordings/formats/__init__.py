"""Readers of recordings, one file per format."""
