"""Checks of a machine, and what is known about devices."""
