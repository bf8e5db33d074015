"""Models of moving systems: states in, rates or trajectories out."""
