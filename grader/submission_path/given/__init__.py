"""What the kit gives every engine: `ops` launches the kernels, `cublas` multiplies matrices, `config` reads a model's
configuration. Import as `from given import ops`."""

from .ops import configure

__all__ = ["configure"]
