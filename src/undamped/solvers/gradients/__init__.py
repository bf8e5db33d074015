"""Gradients of a solve: recomputed from checkpoints, by reversing it, or by the adjoint."""
