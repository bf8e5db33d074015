"""The common parts of kernels: memory, threads, chunks, products, tanh."""
