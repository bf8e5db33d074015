"""undamped.extend placeholder."""
