"""UnICORNN's scans: one layer, a whole network chunk by chunk, a stream."""
