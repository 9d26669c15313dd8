"""Torch modules, one file a family."""
