"""CUDA C on the CPU: a PyCUDA-compatible client, CUDA headers, and the device process that runs kernels."""
