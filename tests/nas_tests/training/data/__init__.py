"""Data sources and their bad inputs."""
