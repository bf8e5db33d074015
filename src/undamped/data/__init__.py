"""Data: files on disk become arrays."""
