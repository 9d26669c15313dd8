"""Proxy training on real data."""
