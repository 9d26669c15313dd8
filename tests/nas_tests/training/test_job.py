from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from nas.training.job import Progress, ProgressFile, read_progress, score_test_job, train_job
from nas.training.recipe import Recipe
from nas.training.result import TrainFailure, TrainResult
from nas.training.score import HeldOutScore
from nas.training.task import TaskSettings
from search_spaces.candidate import Candidate
from tests.nas_tests.training.small_tasks import QUICK, bright_half_images, build_small, candidate_of

CANDIDATE = candidate_of().canonical_json()
ROOT = Path(__file__).parents[3]


@pytest.fixture
def settings(tmp_path: Path) -> TaskSettings:
    images, labels = bright_half_images(240)
    np.savez(tmp_path / "halves.npz", x=images, y=labels)
    return TaskSettings(name="npz", path=str(tmp_path / "halves.npz"))


def test_a_job_runs_in_a_spawned_child_and_its_weights_can_be_scored_on_test(
    tmp_path: Path, settings: TaskSettings
) -> None:
    progress = tmp_path / "progress.json"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        result = pool.apply(
            train_job, (CANDIDATE, settings, QUICK, 0, str(tmp_path / "out"), str(progress), build_small)
        )
        assert isinstance(result, TrainResult), result
        assert result.weights_path is not None and result.weights_sha256 is not None
        test = pool.apply(
            score_test_job, (CANDIDATE, settings, 0, result.weights_path, result.weights_sha256, 1, build_small)
        )
    assert isinstance(test, HeldOutScore) and test.split == "test"
    assert read_progress(progress) == Progress(step=result.num_steps, num_steps=result.num_steps)


def test_a_training_killed_with_signal_9_goes_on_to_the_same_bits(tmp_path: Path, settings: TaskSettings) -> None:
    recipe = QUICK.model_copy(update={"epochs": 20})
    whole = train_job(CANDIDATE, settings, recipe, 0, str(tmp_path / "whole"), None, build_small)
    code = (
        "import sys; from nas.training.job import train_job; from nas.training.recipe import Recipe;"
        "from nas.training.task import TaskSettings;"
        "from tests.nas_tests.training.small_tasks import build_small;"
        "a = sys.argv; train_job(a[1], TaskSettings.model_validate_json(a[2]), Recipe.model_validate_json(a[3]),"
        " 0, a[4], a[5], build_small)"
    )
    progress, out = tmp_path / "progress.json", tmp_path / "torn"
    arguments = [CANDIDATE, settings.model_dump_json(), recipe.model_dump_json(), str(out), str(progress)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen([sys.executable, "-c", code, *arguments], env=environment)
    while not list(out.glob("checkpoint-*.pt.sha256")):
        assert child.poll() is None, "the child ended before its first checkpoint"
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not (out / "weights.pt").exists()
    resumed = train_job(CANDIDATE, settings, recipe, 0, str(out), None, build_small)
    assert isinstance(whole, TrainResult) and isinstance(resumed, TrainResult)
    assert resumed.resumed_from_step > 0
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.history == whole.history


def _build_out_of_memory(candidate: Candidate) -> nn.Module:
    return nn.Linear(2**30, 2**30)


def _build_without_memory(candidate: Candidate) -> nn.Module:
    raise MemoryError


def _build_broken(candidate: Candidate) -> nn.Module:
    raise KeyError("no such block\nand more")


def test_failures_are_values_of_their_kind_with_the_traceback_kept(tmp_path: Path, settings: TaskSettings) -> None:
    (tmp_path / "file").write_text("in the way")
    missing = settings.model_copy(update={"path": str(tmp_path / "none.npz")})
    cases: list[tuple[str, str, object]] = [
        ("crashed", "no such block", train_job(CANDIDATE, settings, QUICK, 0, str(tmp_path), None, _build_broken)),
        (
            "out_of_memory",
            "memory",
            train_job(CANDIDATE, settings, QUICK, 0, str(tmp_path), None, _build_out_of_memory),
        ),
        (
            "out_of_memory",
            "MemoryError",
            train_job(CANDIDATE, settings, QUICK, 0, str(tmp_path), None, _build_without_memory),
        ),
        ("bad_data", "none.npz", train_job(CANDIDATE, missing, QUICK, 0, str(tmp_path), None, build_small)),
        ("storage", "file", train_job(CANDIDATE, settings, QUICK, 0, str(tmp_path / "file" / "x"), None, build_small)),
        ("storage", "gone.pt", score_test_job(CANDIDATE, settings, 0, str(tmp_path / "gone.pt"), "0", 1, build_small)),
    ]
    for kind, word, failure in cases:
        assert isinstance(failure, TrainFailure)
        assert (failure.kind, word in failure.reason, failure.is_infrastructure) == (kind, True, True), failure
        assert "Traceback" in failure.traceback and "\n" not in failure.reason
        assert pickle.loads(pickle.dumps(failure)) == failure


def test_a_diverged_training_is_not_infrastructure(tmp_path: Path, settings: TaskSettings) -> None:
    recipe = Recipe(epochs=2, learning_rate=1e30, clip_norm=1e30, num_threads=1)
    failure = train_job(CANDIDATE, settings, recipe, 0, str(tmp_path), None, build_small)
    assert isinstance(failure, TrainFailure) and not failure.is_infrastructure


def test_progress_is_written_at_intervals_and_at_the_end(tmp_path: Path) -> None:
    path, now_s = tmp_path / "progress.json", [10.0]
    assert read_progress(path) is None
    write = ProgressFile(path, clock=lambda: now_s[0])
    seen = []
    for step in range(1, 8):
        write(step, 7)
        now_s[0] += 0.1
        seen.append(json.loads(path.read_text())["step"])
    assert seen == [1, 1, 1, 4, 4, 4, 7]
