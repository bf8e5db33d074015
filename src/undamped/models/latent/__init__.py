"""Models with a latent variable: what was seen has a cause, and the cause is only guessed."""
