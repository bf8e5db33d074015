"""Experiments: a published result again, at a stated budget."""
