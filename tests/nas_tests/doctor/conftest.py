from __future__ import annotations

from tests.nas_tests.cli.fake_machine import machine

__all__ = ["machine"]
