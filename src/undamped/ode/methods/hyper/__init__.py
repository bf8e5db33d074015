"""Hypersolvers: a cheap method with a learned correction."""
