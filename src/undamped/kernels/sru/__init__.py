"""SRU's light recurrence on GPUs; on the CPU it is a step of `coupled`."""
