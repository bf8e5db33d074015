"""Networks for samples that come at times of their own, and models of what lies between them."""
