from __future__ import annotations

import json
from pathlib import Path

import pytest

from nas.bench.gate_faults import FAULTS, Fault
from nas.bench.gate_faults_device import DEVICE_FAULTS
from nas.bench.gates import plant, run_gates

NEEDED = {
    "shuffled labels", "flipped loss sign", "flipped advantage sign", "learning rate zero", "frozen layer",
    "NaN in one weight", "train and test overlapping", "evaluation returns nothing", "evaluation of the wrong split",
    "compiled weights corrupted", "latency copied from another device", "out of memory in a third of the trials",
    "worker killed in training", "checkpoint cut short", "proxy of two steps",
}  # fmt: skip
LONG = {"worker killed in training", "proxy of two steps"}


def test_every_fault_that_was_asked_for_is_planted_once() -> None:
    assert sorted(fault.name for fault in (*FAULTS, *DEVICE_FAULTS)) == sorted(NEEDED)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.name not in LONG], ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught_by_its_gate(fault: Fault) -> None:
    row = plant(fault, lambda name: None)
    assert row["is_as_expected"], row


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [fault for fault in (*FAULTS, *DEVICE_FAULTS) if fault.name in LONG or fault in DEVICE_FAULTS],
    ids=lambda fault: fault.name,
)  # fmt: skip
def test_a_planted_fault_that_takes_longer_is_caught_by_its_gate(fault: Fault) -> None:
    row = plant(fault, lambda name: None)
    assert row["is_as_expected"], row


@pytest.mark.slow
def test_the_bench_catches_all_and_flags_no_clean_study(tmp_path: Path) -> None:
    result = run_gates(is_quick=False)
    assert result.figures["faults_planted"] == 15
    assert result.figures["faults_caught"] == 15, [row for row in result.rows if not row["is_as_expected"]]
    assert result.figures["clean_flagged"] == 0, [row for row in result.rows if not row["is_as_expected"]]
    json.dumps(result.to_json())
