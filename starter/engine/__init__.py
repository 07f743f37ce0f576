"""A Llama inference engine whose every operation is a CUDA kernel of its own."""
