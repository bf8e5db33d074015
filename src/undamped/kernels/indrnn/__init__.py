"""IndRNN's layer: input product and scan, chunk by chunk."""
