"""Networks and models for irregularly sampled sequences."""
