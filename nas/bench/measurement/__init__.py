"""`nas bench measurement`: whether a latency can be trusted on a noisy machine."""
