"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Hypothesis would fail a property whose first call takes longer than 0.2 s, imports included: that is a test of speed,
# and so is its check that examples are drawn fast enough.
settings.register_profile("nas", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("nas")
