"""What a solve works on: states as one tensor, output times, and gradients of those times."""
