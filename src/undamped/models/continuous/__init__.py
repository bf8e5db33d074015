"""Continuous-depth models: a flow in depth between an input and a prediction."""
