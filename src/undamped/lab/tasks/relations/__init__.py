"""Tasks about relations: trials of pictures whose answer is in how they compare."""
