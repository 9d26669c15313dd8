"""Runs `nas` in this process, on a bench whose every answer is scripted."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import nas.search.session
from nas.cli.main import main
from nas.search.testing import FakeWorkbench, Script, plausible
from profilers.device import DeviceSpec
from profilers.testing import FAKE_DEVICE
from search_spaces.candidate import Candidate


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line on stderr of a command that ended with 2."""
        assert self.code == 2, self
        assert self.out == ""
        (line,) = self.err.splitlines()
        assert line.startswith("nas: ")
        return line


@dataclass
class FakeMachine:
    """A place to run `nas` in.

    Attributes:
        script: what becomes of each candidate.
        on_call: see `FakeWorkbench`.
        benches: one for each search that got so far.
    """

    capsys: pytest.CaptureFixture[str]
    script: Callable[[Candidate], Script] = plausible
    on_call: Callable[[str, str], None] = lambda stage, candidate_id: None
    device: DeviceSpec = FAKE_DEVICE
    benches: list[FakeWorkbench] = field(default_factory=list)

    def bench(self, config: Any, folder: Path, ledger: Any, phases: tuple[str, ...], watcher: Any) -> FakeWorkbench:
        bench = FakeWorkbench(
            folder=folder, ledger=ledger, phases=phases, script=self.script, on_call=self.on_call, device=self.device
        )
        self.benches.append(bench)
        return bench

    def nas(self, *arguments: str | Path) -> Said:
        """Runs a command to its end."""
        self.capsys.readouterr()
        before = sys.argv
        sys.argv = ["nas", *map(str, arguments)]
        try:
            main()
        except SystemExit as end:
            code = end.code
        else:
            code = 0
        finally:
            sys.argv = before
        captured = self.capsys.readouterr()
        assert code is None or isinstance(code, int)
        return Said(code=code or 0, out=captured.out, err=captured.err)


@pytest.fixture
def machine(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A fake machine in a terminal of 200 columns, whose signal handlers are put back afterwards."""
    monkeypatch.setenv("COLUMNS", "200")
    fake = FakeMachine(capsys)
    monkeypatch.setattr(nas.search.session, "LocalWorkbench", fake.bench)
    handler = signal.getsignal(signal.SIGTERM)
    yield fake
    signal.signal(signal.SIGTERM, handler)
