"""Plants faults into small real runs, and reports which gate caught each; runs clean studies, which none may flag."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from nas.bench.gate_faults import FAULTS, Fault, what_fired
from nas.bench.gate_faults_device import DEVICE_FAULTS
from nas.bench.result import BenchResult, Cell
from nas.bench.tiny_studies import RECIPE, TinyStudy
from nas.ledger import Ledger
from nas.search.audit_run import AuditPlan
from nas.search.gate_seconds import gate_share
from nas.search.stored import stored_config

CLEAN_SEEDS = (0, 1, 2, 3, 4)
CLEAN_TRIALS = 12
CLEAN_RECIPE = RECIPE.model_copy(update={"epochs": 16})
CLEAN_AUDIT = AuditPlan(num_candidates=8, factor=3)
"""A proxy of a third of the long training. After six epochs, networks lay between chance and 0.96, and after 48 within
four points, some of them closer than the examples of val tell apart: such an order may hold or not."""
QUICK_SEEDS = (0, 1)
QUICK_TRIALS = 4
"""Clean studies of a quick run are as short as those with a fault, and are not audited."""
SKIPPED_WHEN_QUICK = frozenset({"proxy of two steps", "compiled weights corrupted"})
"""The one needs an audit, the other the real compiler: half a minute each."""


def run_gates(
    *, is_quick: bool, on_progress: Callable[[str], None] = lambda name: None, study: Path | None = None
) -> BenchResult:
    """Runs every fault and every clean study in folders that are removed afterwards.

    Args:
        is_quick: fewer and shorter clean studies, and no fault that needs an audit or the compiler.
        on_progress: told what begins.
        study: results folder of a search, whose gates' share of its time is reported as well.
    """
    faults = [fault for fault in (*FAULTS, *DEVICE_FAULTS) if not (is_quick and fault.name in SKIPPED_WHEN_QUICK)]
    rows = [plant(fault, on_progress) for fault in faults]
    rows += [run_clean(seed, is_quick, on_progress) for seed in (QUICK_SEEDS if is_quick else CLEAN_SEEDS)]
    planted = [row for row in rows if row["kind"] == "fault"]
    clean = [row for row in rows if row["kind"] == "clean"]
    return BenchResult(
        bench="gates",
        device=None,
        figures={
            "faults_planted": len(planted),
            "faults_caught": sum(bool(row["is_as_expected"]) for row in planted),
            "clean_studies": len(clean),
            "clean_flagged": sum(not row["is_as_expected"] for row in clean),
            # Of studies without compiler and device: in a real one it is less.
            "clean_gate_share": fmean(float(row["gate_share"] or 0.0) for row in clean),
            "study_gate_share": None if study is None else share_of_study(study),
        },
        rows=rows,
        is_quick=is_quick,
    )


def plant(fault: Fault, on_progress: Callable[[str], None]) -> dict[str, Cell]:
    """One fault: caught when its gate fired and named it."""
    on_progress(fault.name)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a broken evaluation warns of is not ours
        caught = fault.run(Path(folder))
    return {
        "kind": "fault",
        "name": fault.name,
        "expected_gate": fault.gate,
        "fired": ", ".join(caught.gates) or None,
        "is_as_expected": fault.gate in caught.gates and fault.word in caught.said,
        "said": caught.said or None,
        "gate_share": None,
        "duration_s": time.monotonic() - started,
    }


def share_of_study(folder: Path) -> float | None:
    """Share of a study's time that its gates took.

    Raises:
        StudyError: no study is there.
    """
    with Ledger(stored_config(folder).storage_url) as ledger:
        return gate_share(ledger)


def run_clean(seed: int, is_quick: bool, on_progress: Callable[[str], None]) -> dict[str, Cell]:
    """One study without a fault: no gate may fire."""
    on_progress(f"clean study, seed {seed}")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "study"
        caught = what_fired(
            TinyStudy(
                folder=place,
                seed=seed,
                trials=QUICK_TRIALS if is_quick else CLEAN_TRIALS,
                recipe=RECIPE if is_quick else CLEAN_RECIPE,
                audit=None if is_quick else CLEAN_AUDIT,
            )
        )
        share = share_of_study(place)
    return {
        "kind": "clean",
        "name": f"clean study, seed {seed}",
        "expected_gate": None,
        "fired": ", ".join(caught.gates) or None,
        "is_as_expected": not caught.gates,
        "said": caught.said or None,
        "gate_share": share,
        "duration_s": time.monotonic() - started,
    }
