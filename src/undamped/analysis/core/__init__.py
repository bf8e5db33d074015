"""What instruments are made of: results, figures, unrolled networks, gradients of states."""
