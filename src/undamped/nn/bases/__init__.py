"""Base classes of cells: the contract, kinds of steps, activations."""
