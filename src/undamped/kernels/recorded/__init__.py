"""Plain loops recorded once and replayed, without a call from Python for every step."""
