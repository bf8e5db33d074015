"""Explicit Runge–Kutta methods: one stepper, and tableaux."""
