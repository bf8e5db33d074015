"""Gradients of a solve: one method a file, entered in a registry by a decorator."""
