"""A whole study by reinforcement: real search, rollouts, gates and report; small networks, a scripted device."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from nas.bench.tiny_studies import TinyBench
from nas.config import StudyConfig, load_config
from nas.ledger import Ledger
from nas.search.progress import Silent, Watcher
from nas.search.session import StudyResult, run_study
from nas.search.smoke_run import SmokeFailedError
from nas.search.testing import Script
from nas.training.grpo import group_advantages
from nas.training.reinforce import reinforced_step
from nas.training.task import TaskError
from search_spaces.candidate import Candidate
from search_spaces.layers import num_macs
from tests.nas_tests.training.small_texts import CausalNet


def small_network(candidate: Candidate) -> nn.Module:
    """A network of a few thousand parameters, more where the candidate is wider."""
    return CausalNet(candidate.blocks[0].integer("width") // 8, candidate.head.integer("vocabulary"))


def run(folder: Path, **changes: object) -> StudyResult:
    settings = {
        "search.space": "hybrid_language", "search.trials": 3, "search.sampler": "random", "search.budgets": ["50s"],
        "task.name": "sequence-toy", "training.recipe": "grpo", "training.epochs": 8, "training.learning_rate": 1e-2,
        "training.num_threads": 1, "output.out": folder / "study",
    }  # fmt: skip
    config = load_config(overrides=settings | changes)

    def make(config: StudyConfig, folder: Path, ledger: Ledger, phases: tuple[str, ...], watcher: Watcher) -> TinyBench:
        return TinyBench(
            folder=folder, ledger=ledger, phases=phases, config=config, build=small_network,
            script=lambda candidate: Script(look=num_macs(candidate) / 1e6),
        )  # fmt: skip

    return run_study(
        config, fresh=False, accept_failures=None, watcher=Silent(), make_bench=make,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_study_by_reinforcement_ends_with_shares_of_right_answers_to_held_out_prompts(tmp_path: Path) -> None:
    summary = run(tmp_path).summary
    assert (summary.score_metric, summary.score_direction) == ("answer_accuracy", "maximize")
    assert summary.blocked_because is None, summary.blocked_because
    for member in summary.front:
        assert member.test_score is not None and member.test_score.split == "test"
        assert summary.baselines[0].value < member.test_score.lower <= member.test_score.value
    figures = dict(summary.gates["smoke"].figures)
    assert figures["updates"] == 12
    assert 0 <= float(figures["clip_ratio"] or 0) < 0.5
    assert float(figures["last_parsed_share"] or 0) > float(figures["first_parsed_share"] or 0)
    assert float(dict(summary.gates["controls"].figures)["shuffled_labels"] or 0) < 0.3


def test_a_flipped_advantage_stops_a_study_before_its_first_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flipped(*arguments: object) -> object:
        return reinforced_step(*arguments, advantages=lambda rewards: -group_advantages(rewards))  # type: ignore[arg-type]

    monkeypatch.setattr("nas.training.rehearsal.reinforced_step", flipped)
    with pytest.raises(SmokeFailedError, match=r"stage reinforce: .* flipped sign of the advantage"):
        run(tmp_path)


def test_a_task_without_answers_to_check_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="its answers cannot be checked"):
        run(tmp_path, **{"search.space": "conv_attention", "task.name": "digits"})
    assert not (tmp_path / "study").exists()
