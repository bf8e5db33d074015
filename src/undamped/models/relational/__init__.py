"""Networks of pictures in sequence: an encoder, a normalisation over the sequence, and a head."""
