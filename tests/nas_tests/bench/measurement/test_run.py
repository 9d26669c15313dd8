from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nas.bench.measurement import run
from nas.bench.measurement.parts import Counts, Row
from nas.bench.measurement.rig import Rig, busy_process, core_hog
from profilers.device import local_device
from tests.nas_tests.cli.fake_machine import FakeMachine, machine

__all__ = ["machine"]


def counted(rig: Rig, counts: Counts, known: Sequence[Row]) -> Iterator[Row]:
    for number in range(len(known), 3):
        yield {"number": number, "model": "chain", "foreign_share": 0.0, "rejected_because": None}


def test_what_was_measured_is_kept_and_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "PARTS", {"quiet": counted})
    path = tmp_path / "out" / run.ROWS_NAME

    def bench() -> int:
        result = run.run_bench(["quiet"], is_quick=True, out=tmp_path / "out", plots=None, note=lambda text: None)
        assert result.figures["quiet_rejected"] == 0.0 and result.figures["coverage95"] is None
        return len(result.rows)

    assert bench() == 3
    first = path.read_text()
    path.write_text(first.splitlines()[0] + "\n")  # killed after the first
    assert bench() == 3 and path.read_text() == first


@pytest.mark.parametrize("content", ["no json\n", "[]\n", '{"part": "aa"}\n', '{"part": "aa", "device": "another"}\n'])
def test_rows_of_another_kind_or_device_are_refused_in_one_line(
    machine: FakeMachine, tmp_path: Path, content: str
) -> None:
    (tmp_path / run.ROWS_NAME).write_text(content)
    words = machine.nas("bench", "measurement", "--part", "speed", "--quick", "--out", tmp_path).err
    assert "give another --out" in words.splitlines()[-1]


def test_an_unknown_part_lists_the_known_ones(machine: FakeMachine) -> None:
    complaint = machine.nas("bench", "measurement", "--part", "vibes").complaint
    assert "allowed: speed, quiet, hogs, apart, coverage, aa" in complaint


def test_a_watch_sees_who_else_works_and_hogs_end_with_their_block(tmp_path: Path) -> None:
    import psutil

    core = local_device(1).cores[0]
    before = set(psutil.Process().children(recursive=True))
    with busy_process(), core_hog(core):
        assert len(set(psutil.Process().children(recursive=True)) - before) == 2
    assert set(psutil.Process().children(recursive=True)) <= before
