from __future__ import annotations

from pathlib import Path

from nas.training.controls import score_shuffled
from nas.training.result import Shuffled, TrainResult
from nas.training.trainer import train
from tests.nas_tests.training.small_tasks import QUICK, bright_half_task, build_small, candidate_of


def test_a_network_that_learns_falls_to_chance_when_labels_or_inputs_are_shuffled(tmp_path: Path) -> None:
    task = bright_half_task(480)
    trained = train(candidate_of(), task, QUICK, seed=0, out_dir=tmp_path, build=build_small)
    assert isinstance(trained, TrainResult) and trained.weights_path and trained.weights_sha256
    seen = score_shuffled(
        candidate_of(), task, QUICK, seed=0, weights_path=Path(trained.weights_path),
        weights_sha256=trained.weights_sha256, build=build_small,
    )  # fmt: skip
    assert isinstance(seen, Shuffled)
    assert trained.score.lower > 0.5
    assert seen.labels.lower < 0.25 < seen.labels.upper + 0.1
    assert seen.inputs.lower < 0.25 < seen.inputs.upper + 0.1
    assert seen.inputs.num_examples == len(task.val)
