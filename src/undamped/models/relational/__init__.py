"""Models of image sequences: an encoder, a normalisation over the sequence, and a head."""
