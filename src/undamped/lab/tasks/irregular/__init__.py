"""Tasks of irregularly sampled series."""
