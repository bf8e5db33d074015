"""What all kernels are built from: memory, threads, chunks, products, tanh."""
