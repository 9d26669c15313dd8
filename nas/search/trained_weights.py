"""What the ledger keeps of a training, and where its weights are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nas.training.result import TrainResult
from nas.training.score import HeldOutScore
from nas.trial import score_from_json, score_to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedWeights:
    """Where a trial's weights are, and what they must hash to."""

    path: Path
    sha256: str
    seed: int
    untrained_score: HeldOutScore


def trained_to_json(result: TrainResult) -> dict[str, Any]:
    """What the ledger keeps of a training."""
    return {
        "score": score_to_json(result.score),
        "untrained_score": score_to_json(result.untrained_score),
        "weights_path": result.weights_path,
        "weights_sha256": result.weights_sha256,
        "seed": result.seed,
        "num_steps": result.num_steps,
        "chosen_step": result.chosen_step,
        "task_fingerprint": result.task_fingerprint,
        "history": [asdict(epoch) for epoch in result.history],
    }


def trained_from_json(payload: Mapping[str, Any], folder: Path) -> TrainedWeights:
    """The weights of a remembered training; `folder` is where the study's weights live now."""
    return TrainedWeights(
        path=folder / Path(payload["weights_path"]).name,
        sha256=payload["weights_sha256"],
        seed=payload["seed"],
        untrained_score=score_from_json(payload["untrained_score"]),
    )
