"""Checks that stop a wrong number before it counts."""
