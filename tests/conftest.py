"""What holds for every test."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# Hypothesis would fail a property whose first call takes longer than 0.2 s, imports included: that is a test of speed,
# and so is its check that examples are drawn fast enough.
settings.register_profile("nas", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("nas")

# A runner that started the tests in the background may have told them to ignore Ctrl-C, and every child inherits that:
# tests that interrupt a child would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
