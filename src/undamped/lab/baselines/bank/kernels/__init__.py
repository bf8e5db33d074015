"""A bank of driven oscillators and the running features of what they do."""
