"""What the cells of several papers share: the contract, families of steps, activations."""
