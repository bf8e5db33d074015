"""Tasks: data, loss, metrics, and what a guess would score."""
