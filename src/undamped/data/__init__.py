"""Data on disk: fetching published sets, and reading files into arrays."""
