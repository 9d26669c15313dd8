"""Proxy training: data, trainer, checkpoints, scores."""
