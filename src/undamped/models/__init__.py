"""Models beyond recurrent layers: physics, continuous depth, irregular time, latent, relational."""
