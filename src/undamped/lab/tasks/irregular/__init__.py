"""Tasks whose samples come at times of their own."""
