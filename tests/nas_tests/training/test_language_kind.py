from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nas.gates.smoke import rehearsal_fault
from nas.training import evaluate, kinds
from nas.training.audit import audit_splits
from nas.training.baselines import constant_score
from nas.training.checkpoint import CheckpointError, save_state
from nas.training.controls import score_shuffled
from nas.training.evaluate import eval_batch_size, load_model, score_test, score_val
from nas.training.kinds import kind_of
from nas.training.rehearsal import rehearse
from nas.training.result import Shuffled, TrainFailure, TrainResult
from nas.training.trainer import train
from tests.nas_tests.training.small_texts import QUICK, SETTINGS, build_text_network, candidate_of, small_task

TASK = small_task()


def trained(out: Path | None = None, seed: int = 0) -> TrainResult:
    result = train(candidate_of(), TASK, QUICK, seed=seed, out_dir=out, build=build_text_network)
    assert isinstance(result, TrainResult), result
    return result


def test_a_network_that_knows_nothing_needs_eight_bits_for_a_byte() -> None:
    score = score_val(build_text_network(candidate_of("uniform")), TASK, seed=0)
    assert score.metric == "bits_per_byte"
    assert (score.value, score.lower, score.upper) == pytest.approx((8.0, 8.0, 8.0))
    assert score.slices == (("english", pytest.approx(8.0)),)


class _Halves(nn.Module):
    """Gives the right token half of the probability in every position and a quarter in the first, by looking it up."""

    def __init__(self, labels_nt: np.ndarray) -> None:
        super().__init__()
        self.labels_nt, self.asked = torch.from_numpy(labels_nt.astype(np.int64)), 0

    def forward(self, tokens_nt: Tensor) -> Tensor:
        right_nt = self.labels_nt[self.asked : self.asked + len(tokens_nt)]
        self.asked += len(tokens_nt)
        share_nt = torch.full(right_nt.shape, 0.5)
        share_nt[:, 0] = 0.25
        probability = ((1 - share_nt) / 255).unsqueeze(-1).repeat(1, 1, 256)
        return probability.scatter(2, right_nt.unsqueeze(-1), share_nt.unsqueeze(-1)).log()


def test_bits_are_counted_over_all_positions_in_batches_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = (TASK.val.inputs.shape[1] - 1 + 2) / TASK.val.inputs.shape[1]
    for outputs in (1, 3 * 32 * 256, 2**22):
        monkeypatch.setattr(evaluate, "MAX_OUTPUTS", outputs)
        assert eval_batch_size(TASK) == {1: 1, 3 * 32 * 256: 3, 2**22: 256}[outputs]
        assert score_val(_Halves(TASK.val.labels), TASK, seed=0).value == pytest.approx(expected, abs=1e-5)


def test_bits_per_byte_is_a_ratio_of_sums_when_tokens_have_different_lengths() -> None:
    """As byte pairs do: each token costs log2(256) bits here, and stands for one or three bytes."""
    num = len(TASK.val)
    num_bytes = np.where(np.arange(num) % 2 == 0, 32, 96)
    task = replace(TASK, val=replace(TASK.val, num_bytes=num_bytes))
    score = score_val(build_text_network(candidate_of("uniform")), task, seed=0)
    assert score.value == pytest.approx(8 * 32 * num / num_bytes.sum())


def test_files_that_are_alike_within_widen_the_interval() -> None:
    model = build_text_network(candidate_of())
    alone = score_val(model, replace(TASK, val=replace(TASK.val, groups=None)), seed=0)
    by_file = score_val(model, TASK, seed=0)
    assert by_file.value == alone.value
    assert (by_file.lower, by_file.upper) != (alone.lower, alone.upper)
    assert by_file.lower < by_file.value < by_file.upper


def test_training_brings_bits_per_byte_down_and_keeps_the_epoch_with_the_fewest(tmp_path: Path) -> None:
    result = trained(tmp_path)
    assert result.untrained_score.value > 7
    assert result.score.value < constant_score(TASK) < result.untrained_score.value
    assert result.score.value == min(epoch.val_value for epoch in result.history)
    assert trained().score == result.score
    model = load_model(candidate_of(), tmp_path / "weights.pt", build=build_text_network)
    assert score_test(model, TASK, seed=0).value == pytest.approx(result.score.value, rel=0.1)


def test_an_interrupted_training_of_text_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(step: int, num_steps: int) -> None:
        if step > 2 * num_steps // 3:
            raise Stop

    with pytest.raises(Stop):
        train(candidate_of(), TASK, QUICK, seed=0, out_dir=tmp_path, on_step=stop, build=build_text_network)
    again = trained(tmp_path)
    assert again.resumed_from_step > 0
    assert again.score == trained().score


def test_a_network_that_learns_passes_the_smoke_gate() -> None:
    seen = rehearse(candidate_of(), TASK, QUICK, seed=0, build=build_text_network)
    assert rehearsal_fault(seen) is None, seen
    assert seen.scoring is not None and seen.scoring.if_right < seen.scoring.value < seen.scoring.if_wrong


def test_a_network_of_text_that_cannot_learn_fails_it() -> None:
    slow = QUICK.model_copy(update={"learning_rate": 1e-9})
    fault = rehearsal_fault(rehearse(candidate_of(), TASK, slow, seed=0, build=build_text_network))
    assert fault is not None and fault.stage == "train"


def test_with_the_link_to_the_inputs_cut_nothing_beats_the_frequencies_of_tokens(tmp_path: Path) -> None:
    result = trained(tmp_path)
    assert result.weights_path and result.weights_sha256
    seen = score_shuffled(
        candidate_of(), TASK, QUICK, seed=0, weights_path=Path(result.weights_path),
        weights_sha256=result.weights_sha256, build=build_text_network,
    )  # fmt: skip
    assert isinstance(seen, Shuffled)
    chance = constant_score(TASK)
    assert result.score.upper < chance - 0.5
    assert seen.inputs.value > chance - 0.05
    assert seen.labels.value > chance - 0.05


def test_diverging_on_text_is_a_failure_and_no_score() -> None:
    wild = QUICK.model_copy(update={"learning_rate": 1e18, "clip_norm": 1e18})
    assert isinstance(train(candidate_of(), TASK, wild, seed=0, build=build_text_network), TrainFailure)


def test_weights_of_another_vocabulary_are_refused_and_both_are_named(tmp_path: Path) -> None:
    sha256 = save_state(tmp_path / "weights.pt", build_text_network(candidate_of(vocabulary=300)).state_dict())
    with pytest.raises(CheckpointError, match=r"vocabulary of 300 tokens, the network has 256; set task\.vocabulary"):
        load_model(candidate_of(), tmp_path / "weights.pt", sha256=sha256, build=build_text_network)


def test_weights_that_differ_in_more_than_the_vocabulary_are_not_said_to_differ_in_it(tmp_path: Path) -> None:
    state = build_text_network(candidate_of(vocabulary=300)).state_dict()
    sha256 = save_state(tmp_path / "weights.pt", {**state, "mix.weight": torch.zeros(3, 24, 5)})
    with pytest.raises(CheckpointError, match="size mismatch"):
        load_model(candidate_of(), tmp_path / "weights.pt", sha256=sha256, build=build_text_network)


def test_scores_by_domain_make_up_the_whole() -> None:
    task = small_task(SETTINGS, "english", "numbers")
    result = train(candidate_of(), task, QUICK, seed=0, build=build_text_network)
    assert isinstance(result, TrainResult)
    by_domain = dict(result.score.slices)
    assert list(by_domain) == ["english", "numbers"]
    assert task.val.num_bytes is not None
    sizes = [task.val.num_bytes[task.val.domains == number].sum() for number in range(2)]
    assert result.score.value == pytest.approx(np.average(list(by_domain.values()), weights=sizes))


def test_the_audit_of_the_data_takes_rare_tokens_for_no_fault_and_finds_copied_passages_wherever_they_stand() -> None:
    assert audit_splits(TASK) == ()
    copied = replace(TASK, val=TASK.train.take(slice(3)))
    assert {finding.kind for finding in audit_splits(copied)} == {"duplicates"}
    task = small_task(SETTINGS.model_copy(update={"context": 256}))
    assert audit_splits(task) == ()
    inputs = task.val.inputs.copy()
    inputs[0, 128:192] = task.train.inputs[3, 37:101]
    (finding,) = audit_splits(replace(task, val=replace(task.val, inputs=inputs)))
    assert (finding.kind, finding.where, finding.count) == ("copied_text", "train/val", 1)
    assert finding.num_checked == 4 * len(task.val)


class _OfTwo(nn.Module):
    """Wants its tokens and as many numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = build_text_network(candidate_of())

    def forward(self, tokens_nt: Tensor, numbers_nt: Tensor) -> Tensor:
        assert torch.equal(tokens_nt, numbers_nt)
        return self.inner(tokens_nt)


def test_a_network_may_take_several_inputs_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain = kind_of(TASK)
    twice = replace(plain, prepare=lambda task, raw: (plain.prepare(task, raw), plain.prepare(task, raw)))
    monkeypatch.setitem(kinds.KINDS, TASK.kind, twice)

    def build(_candidate: object) -> nn.Module:
        return _OfTwo()

    result = train(candidate_of(), TASK, QUICK, seed=0, out_dir=tmp_path, build=build)
    assert isinstance(result, TrainResult) and result.weights_path and result.weights_sha256
    assert rehearsal_fault(rehearse(candidate_of(), TASK, QUICK, seed=0, build=build)) is None
    seen = score_shuffled(
        candidate_of(), TASK, QUICK, seed=0, weights_path=Path(result.weights_path),
        weights_sha256=result.weights_sha256, build=build,
    )  # fmt: skip
    assert isinstance(seen, Shuffled) and math.isfinite(seen.inputs.value)
