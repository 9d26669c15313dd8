"""Data sets, one file a source."""
