import csv
import json
from pathlib import Path

from nas.bench.result import BenchResult

RESULT = BenchResult(
    bench="kernels",
    device="local",
    figures={"ratio": 1.25, "by_device": {"pixel2": {"n10": 0.9}}},
    rows=[{"candidate": "a", "ratio": 1.5}, {"candidate": "b", "ratio": 1.0, "note": "x,y"}],
    is_quick=True,
)


def test_the_json_object_holds_everything_and_says_that_a_run_was_quick() -> None:
    read = json.loads(json.dumps(RESULT.to_json()))
    assert set(read) == {"bench", "device", "is_quick", "figures", "rows"}
    assert read["is_quick"] is True
    assert read["figures"]["by_device"]["pixel2"]["n10"] == 0.9
    assert len(read["rows"]) == 2


def test_the_csv_has_every_column_of_every_row(tmp_path: Path) -> None:
    RESULT.write_csv(tmp_path / "kernels.csv")
    with (tmp_path / "kernels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["ratio"] for row in rows] == ["1.5", "1.0"]
    assert [row["note"] for row in rows] == ["", "x,y"]
