"""Models with a latent initial state, trained by a bound on the likelihood."""
