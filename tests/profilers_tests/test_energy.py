from __future__ import annotations

from pathlib import Path

from profilers.energy import EnergyMeter


def make_zone(folder: Path, name: str, energy_uj: int, range_uj: int = 1_000_000) -> Path:
    zone = folder / name
    zone.mkdir(parents=True)
    (zone / "energy_uj").write_text(f"{energy_uj}\n")
    (zone / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return zone


def test_packages_are_added_up_and_their_parts_are_not_counted_twice(tmp_path: Path) -> None:
    zones = [make_zone(tmp_path, name, 100) for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0")]
    make_zone(tmp_path, "dtpm", 100)
    meter = EnergyMeter(tmp_path)
    before = meter.read_uj()
    assert meter.can_read and before == [100, 100]
    for zone in zones:
        (zone / "energy_uj").write_text("350\n")
    assert meter.used_uj(before, meter.read_uj()) == 500


def test_a_counter_that_starts_over_goes_on(tmp_path: Path) -> None:
    zone = make_zone(tmp_path, "intel-rapl:0", 999_990)
    meter = EnergyMeter(tmp_path)
    before = meter.read_uj()
    (zone / "energy_uj").write_text("9\n")
    assert meter.used_uj(before, meter.read_uj()) == 20


def test_without_a_counter_there_is_no_energy(tmp_path: Path) -> None:
    (tmp_path / "intel-rapl:0").mkdir()
    meter = EnergyMeter(tmp_path)
    assert not meter.can_read and meter.read_uj() == []
    assert not EnergyMeter(tmp_path / "absent").can_read
