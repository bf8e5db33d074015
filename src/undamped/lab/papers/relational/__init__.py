"""Experiments about relations: rules and new objects, games, spurious colours, comparisons."""
