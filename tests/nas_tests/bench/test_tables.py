"""Tables of measured architectures: what is read, what is dropped with a count, what is refused by name."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from nas.bench import table_kinds
from nas.bench.tables import Table, TableError, load_table

NUM_ROWS = 30


def write_table(folder: Path, rows: list[str], header: str = "arch,lat_ms_phone,test_acc") -> Path:
    path = folder / "mine.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def good_rows() -> list[str]:
    return [f"conv{k % 3}-pool{k % 5},{1.0 + k},{0.5 + k / 100}" for k in range(NUM_ROWS)]


def rows_with(bad: str) -> list[str]:
    return [f"conv-pool,{bad},0.5", *good_rows()]


def test_a_table_with_named_columns_is_read(tmp_path: Path) -> None:
    table = load_table(write_table(tmp_path, good_rows()))
    assert table.kind == "generic"
    assert dict(table.choices[4]) == {"word_0": "conv1", "word_1": "pool4"}
    assert table.devices["phone"].values[:2].tolist() == [1.0, 2.0]
    assert table.qualities["test_acc"].values[0] == 0.5


def test_a_compressed_table_reads_like_a_plain_one(tmp_path: Path) -> None:
    plain = write_table(tmp_path, good_rows())
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert load_table(packed).devices["phone"].values.tolist() == load_table(plain).devices["phone"].values.tolist()


@pytest.mark.parametrize("bad", ["0", "-3.5", "nan", "", "inf", "-inf"])
def test_a_value_that_is_no_latency_is_dropped_and_counted(tmp_path: Path, bad: str) -> None:
    column = load_table(write_table(tmp_path, rows_with(bad))).devices["phone"]
    assert column.num_dropped == 1
    assert column.rows.tolist() == list(range(1, NUM_ROWS + 1))


def test_text_among_latencies_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"line 2: lat_ms_phone is '12 ms', which is no number"):
        load_table(write_table(tmp_path, rows_with("12 ms")))


def test_a_column_without_enough_latencies_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="phone has 5 usable values of 30; at least 20"):
        load_table(write_table(tmp_path, [*good_rows()[:5], *["conv,0,0.5"] * 25]))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("arch,seconds,test_acc", "no column of latencies"),
        ("name,lat_ms_phone,test_acc", "no column of architectures"),
    ],
)
def test_a_table_without_the_columns_is_refused(tmp_path: Path, header: str, message: str) -> None:
    with pytest.raises(TableError, match=message):
        load_table(write_table(tmp_path, good_rows(), header))


def test_a_named_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="no column 'ms'; there are: arch, lat_ms_phone"):
        load_table(write_table(tmp_path, good_rows()), latencies=["ms"])


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b broken", b"arch,lat_ms\n", b"\xff\xfe\x00"])
def test_a_file_that_is_no_table_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ("broken.csv.gz" if content.startswith(b"\x1f") else "broken.csv")
    path.write_bytes(content)
    with pytest.raises(TableError) as caught:
        load_table(path)
    assert "\n" not in str(caught.value)
    assert "broken.csv" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"gone\.csv: no such file"):
        load_table(tmp_path / "gone.csv")


def test_columns_that_describe_an_architecture_become_numbers_and_categories(tmp_path: Path) -> None:
    rows = [f"{16 * (k % 4 + 1)},relu,{k + 1}" for k in range(NUM_ROWS)]
    table = load_table(write_table(tmp_path, rows, "width,activation,lat_ms"), architecture=["width", "activation"])
    assert dict(table.choices[2]) == {"width": 48.0, "activation": "relu"}


def cells_table(folder: Path) -> Table:
    operations = table_kinds.CELL_OPERATIONS
    names = [[operations[(k // 5**edge + edge) % 5] for edge in range(6)] for k in range(NUM_ROWS)]
    cells = [f"|{a}~0|+|{b}~0|{c}~1|+|{d}~0|{e}~1|{f}~2|" for a, b, c, d, e, f in names]
    rows = [f"{cell},{k + 1},{50 + k},{1000 + k}" for k, cell in enumerate(cells)]
    return load_table(write_table(folder, rows, "arch_str,lat_ms_phone,test_acc,macs"))


def test_cell_strings_are_recognised_and_percent_becomes_a_fraction(tmp_path: Path) -> None:
    table = cells_table(tmp_path)
    assert table.kind == "nasbench201"
    assert table.choices[1]["edge_0_1"] == "skip_connect"
    assert table.qualities["test_acc"].values[0] == pytest.approx(0.5)
    assert table.macs is not None
    assert table.macs[1] == 1001


def test_a_transformer_has_encoder_decoder_and_their_sum_on_each_device(tmp_path: Path) -> None:
    shapes = list(table_kinds.TRANSFORMER_SHAPES)
    header = ",".join(["task", "device", *shapes, "latency_mean_encoder", "latency_mean_decoder"])
    rows = [
        f"wmt,{'pi' if k % 2 else 'gpu'},{','.join(str(512 + k) for _ in shapes)},{k + 1},{10 * (k + 1)}"
        for k in range(60)
    ]
    table = load_table(write_table(tmp_path, rows, header))
    total = table.devices["wmt/pi/total"]
    assert total.rows.tolist() == list(range(1, 60, 2))
    assert np.allclose(total.values, 11.0 * (total.rows + 1))
    assert table.choices[3]["decoder_embed_dim"] == 515


def test_a_transformer_without_a_shape_is_refused_with_its_line(tmp_path: Path) -> None:
    shapes = list(table_kinds.TRANSFORMER_SHAPES)
    header = ",".join(["task", "device", *shapes, "latency_mean_encoder", "latency_mean_decoder"])
    rows = [f"wmt,pi,{','.join('512' for _ in shapes[1:])},,{k + 1},{k + 1}" for k in range(NUM_ROWS)]
    with pytest.raises(TableError, match="line 2: decoder_arbitrary_ende_attn_avg is empty"):
        load_table(write_table(tmp_path, rows, header))
