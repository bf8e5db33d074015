"""Lie-group methods: steps that are rotations, for fields that only turn."""
