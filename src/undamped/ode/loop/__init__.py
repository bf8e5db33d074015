"""The loops over time: one step size for all, or one for every sample."""
