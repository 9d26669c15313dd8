"""Whole studies of language models: real search, gates and report; small networks are trained, devices scripted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch import nn

from nas.bench.tiny_studies import TinyBench
from nas.config import StudyConfig, load_config
from nas.ledger import Ledger
from nas.search.audit_run import AuditPlan
from nas.search.progress import Silent, Watcher
from nas.search.session import StudyResult, run_study
from nas.search.testing import Script
from nas.training.task import TaskError
from search_spaces.candidate import Candidate
from search_spaces.layers import num_macs
from tests.nas_tests.training.small_texts import CausalNet, files_of


def small_network(candidate: Candidate) -> nn.Module:
    """A network of a few thousand parameters, more where the candidate is wider."""
    return CausalNet(candidate.blocks[0].integer("width") // 16, 256)


def by_work(candidate: Candidate) -> Script:
    return Script(look=num_macs(candidate) / 1e6)


def run(folder: Path, audit: AuditPlan | None = None, **changes: object) -> StudyResult:
    """A study of two domains with a context of 32 bytes: a second a training."""
    domains = {}
    for words in ("english", "numbers"):
        (folder / words).mkdir(parents=True, exist_ok=True)
        for file in files_of(words):
            (folder / words / file.name).write_bytes(file.content)
        domains[words] = str(folder / words)
    settings = {
        "search.space": "hybrid_language", "search.trials": 5, "search.sampler": "random", "search.budgets": ["50s"],
        "task.name": "text", "task.domains": domains, "task.context": 32, "training.epochs": 6,
        "training.learning_rate": 1e-2, "training.epoch_examples": 128, "training.num_threads": 1,
        "output.out": folder / "study",
    }  # fmt: skip
    config = load_config(overrides=settings | changes)

    def make(config: StudyConfig, folder: Path, ledger: Ledger, phases: tuple[str, ...], watcher: Watcher) -> TinyBench:
        return TinyBench(
            folder=folder, ledger=ledger, script=by_work, phases=phases, config=config, build=small_network
        )

    return run_study(
        config,
        fresh=False,
        accept_failures=None,
        watcher=Silent(),
        audit=audit,
        make_bench=make,  # type: ignore[arg-type]
    )


def test_a_language_study_ends_with_a_front_of_fewest_bits_per_byte(tmp_path: Path) -> None:
    summary = run(tmp_path, AuditPlan(num_candidates=3, factor=2), **{"search.finalist_seeds": 2}).summary
    assert (summary.score_metric, summary.score_direction) == ("bits_per_byte", "minimize")
    values = [member.val_score.value for member in summary.front]
    assert values == sorted(values, reverse=True), "slower members need fewer bits"
    scored = [record.score.value for record in summary.records if record.score is not None]
    assert min(values) == min(scored)
    gates = summary.gates
    assert {name for name, gate in gates.items() if not gate.passed} <= {"proxy"}, gates
    figures = dict(gates["controls"].figures)
    assert figures["trained"] < figures["constant_answer"] - 0.3
    assert {name for name, _ in summary.front[0].val_score.slices} == {"english", "numbers"}
    assert summary.front[0].seed_score is not None and len(summary.front[0].seed_score.seeds) == 2
    page = (tmp_path / "study" / "report.html").read_text()
    assert "Val bits_per_byte" in page
    manifest = json.loads((tmp_path / "study" / "manifest.json").read_text())
    assert manifest["task"]["domains"] == ["english", "numbers"]
    winner = tmp_path / "study" / "winners" / summary.front[0].candidate_id
    assert json.loads((winner / "inputs.json").read_text())["head"]["options"] == {"vocabulary": 256}


def test_a_domain_that_needs_too_many_bits_keeps_a_network_from_the_front(tmp_path: Path) -> None:
    summary = run(tmp_path, **{"search.min_slice": 0.01, "search.trials": 2}).summary
    assert summary.front == ()
    assert all("--min-slice is 0.01" in dropped.reason for dropped in summary.dropped)


def test_images_for_a_language_space_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"'digits' is image classification, .* fit: python-source, sequence-toy, text"):
        run(tmp_path, **{"task.name": "digits", "task.domains": None})
    assert not (tmp_path / "study").exists()
