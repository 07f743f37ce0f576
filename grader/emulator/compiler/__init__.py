"""From CUDA C text to a loadable library: lint, rewriting, the toolchain."""
