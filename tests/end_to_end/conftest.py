"""Runs the real command on the real compiler, device and data, with one cache for all tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nas.compile.tvm import CompileLimits, TvmCompiler
from profilers.device import local_device

TIMEOUT_S = 1800
QUICK = ("--epochs", "1", "--tuning-trials", "1")
"""One epoch and one schedule a kernel: everything real, nothing long."""


@dataclass(frozen=True)
class Ran:
    """A finished command."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.stdout)
        return value


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def environment(cache: Path) -> dict[str, str]:
    return os.environ | {"NAS_CACHE_DIR": str(cache), "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="session")
def nas(environment: dict[str, str]) -> Callable[..., Ran]:
    """Runs `nas ARGUMENTS` to its end."""

    def run(*arguments: str, cwd: Path | None = None) -> Ran:
        done = subprocess.run(
            command(*arguments), capture_output=True, text=True, env=environment, timeout=TIMEOUT_S, cwd=cwd
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from nas.cli.main import main; main()", *arguments]


@pytest.fixture(scope="module")
def untuned_compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TvmCompiler]:
    """Compiles with each kernel's first schedule: enough to compare outputs."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NAS_CACHE_DIR", str(folder))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("TVM_NUM_THREADS", "1")
        compiler = TvmCompiler(local_device(1), CompileLimits(tuning_trials=0, timeout_s=600.0), folder)
        yield compiler
        compiler.close()
