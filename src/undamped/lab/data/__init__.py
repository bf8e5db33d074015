"""Data: from files on disk to arrays that a task can use."""
