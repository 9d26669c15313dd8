"""The search itself."""

__version__ = "0.1.0"
