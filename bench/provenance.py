"""Where a measurement was made; the package's own."""

from mathfuse._provenance import collect

__all__ = ["collect"]
