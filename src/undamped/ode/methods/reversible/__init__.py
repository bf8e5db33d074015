"""Reversible methods: a step can be undone to rounding, so gradients need no stored steps."""
