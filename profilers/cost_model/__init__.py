"""Predicts what a candidate costs on a device from few measurements, with intervals that hold."""
