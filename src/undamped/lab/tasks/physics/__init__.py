"""Systems that move, simulated: true energies, starts as in the papers, what to learn of them."""
