"""Published data sets: where they are, how they get into the cache."""
