"""GLOW: dense retrieval with globally weighted self-attention, from text to HTTP."""

__version__ = "0.1.0"

__all__ = ["__version__"]
