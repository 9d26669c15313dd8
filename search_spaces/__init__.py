"""Search spaces: what can be built, as pure data."""
