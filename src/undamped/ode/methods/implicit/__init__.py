"""Implicit methods, for stiff fields."""
