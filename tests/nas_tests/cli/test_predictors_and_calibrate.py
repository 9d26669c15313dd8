"""The commands of the cost model: what they print, and what they refuse in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nas.cli import main as cli


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["nas", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    code = ended.value.code
    return code if isinstance(code, int) else 0


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = [f"k{k % 4}-w{k % 7}-d{k % 3},{(k % 4) + 2 * (k % 7) + 1 + k % 3}" for k in range(120)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["arch,lat_ms_phone", *rows, "k1-w1-d1,-5"]) + "\n")
    return path


def test_figures_come_as_one_json_object(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, plot = tmp_path / "out", tmp_path / "p.png"
    arguments = ("--quick", "--samples", "20", "--json", "--out", str(out), "--plot", str(plot))
    assert call(monkeypatch, "bench", "predictors", str(table), *arguments) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["bench"] == "predictors"
    assert answer["is_quick"] is True
    assert answer["figures"]["dropped_values"] == {"phone": 1.0}
    assert 0 <= answer["figures"]["by_device"]["phone"]["within10_n20"] <= 1
    assert (out / "predictors.csv").read_text().startswith("device,num_samples,seed,predictor")
    assert plot.exists()


def test_people_get_a_table_with_what_was_dropped(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "bench", "predictors", str(table), "--quick", "--samples", "20") == 0
    text = capsys.readouterr().out
    assert "quick run: these figures are coarse" in text
    assert "phone: 1 values dropped" in text
    assert {"model", "macs", "counts"} <= set(text.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bench", "predictors", "gone.csv"), "gone.csv: no such file"),
        (("bench", "predictors", "TABLE", "--device", "tablet"), "no device 'tablet'; there are: phone"),
        (("bench", "predictors", "TABLE", "--samples", "3"), "3 samples; allowed: 8 to"),
        (("bench", "predictors", "TABLE", "--selection", "best"), "--selection 'best' is unknown; allowed: random"),
        (("calibrate", "--device", "moon"), "device 'moon': unknown; allowed: local"),
        (("calibrate", "--samples", "3"), "--samples 3 is too few; allowed: 8 or more"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    assert call(monkeypatch, *(str(table) if each == "TABLE" else each for each in arguments)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert message in lines[0]
