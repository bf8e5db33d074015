"""Whole models of systems that move: states in, rates or trajectories out."""
