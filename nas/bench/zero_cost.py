"""What scores of untrained networks are worth: do they order a finished study's networks, and does a surrogate with
them order new ones better than without?"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.bench.result import BenchResult, Cell, Figure
from nas.errors import NasError
from nas.ledger import Ledger
from nas.search.gaussian_process import GaussianProcesses
from nas.search.stored import stored_config
from nas.search.warp import Warp
from nas.training.data.sources import load_task
from nas.training.score import LOWER_IS_BETTER
from nas.trial import TrialRecord
from search_spaces.layers import num_macs, num_params
from search_spaces.registry import make_space

Floats = NDArray[np.float64]

MIN_NETWORKS = 10
NUM_SPLITS = 40
"""Halvings in which the surrogate learns from one half and orders the other; differences between them are paired."""


class BenchZeroCostError(NasError):
    """A study that has too little to say."""


def bench_zero_cost(folder: Path, *, most: int | None, report: Callable[[str], None]) -> BenchResult:
    """Scores the networks of a finished study untrained, and compares with what training came to.

    Args:
        folder: results folder of the study.
        most: networks to look at, the first ones; None: all.
        report: told how far it is.

    Raises:
        NasError: no study, or fewer than `MIN_NETWORKS` scored networks.
    """
    config = stored_config(folder)
    task = load_task(config.task)
    space = make_space(config.search.space, task.input, task.head)
    with Ledger(config.storage_url) as ledger:
        scored = [each for each in ledger.records() if each.score is not None and each.duplicate_of is None][:most]
    if len(scored) < MIN_NETWORKS:
        raise BenchZeroCostError(f"{folder}: {len(scored)} scored networks; needed: at least {MIN_NETWORKS}")
    from nas.training.zero_cost import SCORES, zero_cost_scores

    rows: list[dict[str, Cell]] = []
    for number, record in enumerate(scored):
        started = time.process_time()
        scores = zero_cost_scores(record.candidate, task, seed=config.search.seed)
        rows.append(
            _row(record) | {each.name: each.value for each in scores} | {"cpu_s": time.process_time() - started}
        )
        if number == 0:
            for each in scores:
                if each.reason is not None:
                    report(f"{each.name}: left out, {each.reason}")
    columns = {name: _column(rows, name) for name in ("num_params", "num_macs", *SCORES)}
    known = {name: values for name, values in columns.items() if values is not None}
    quality = _qualities(scored)
    encoding = np.array([space.encode(record.candidate) for record in scored])
    figures: dict[str, Figure] = {
        "spearman": {name: _spearman(known[name], quality) if name in known else None for name in columns},
        "surrogate_spearman": _surrogates(encoding, {name: known[name] for name in SCORES if name in known}, quality),
        "cpu_s": float(np.mean([_number(row["cpu_s"]) for row in rows])),
        "num_networks": float(len(rows)),
    }
    return BenchResult(bench="zero-cost", device=None, figures=figures, rows=rows, is_quick=most is not None)


def _row(record: TrialRecord) -> dict[str, Cell]:
    assert record.score is not None
    candidate = record.candidate
    return {
        "candidate_id": candidate.candidate_id,
        "score": record.score.value,
        "num_params": num_params(candidate),
        "num_macs": num_macs(candidate),
    }


def _qualities(scored: Sequence[TrialRecord]) -> Floats:
    """Larger is better."""
    scores = [record.score for record in scored if record.score is not None]
    sign = -1.0 if scores[0].metric in LOWER_IS_BETTER else 1.0
    return sign * np.array([score.value for score in scores])


def _number(cell: Cell) -> float:
    assert isinstance(cell, int | float)
    return float(cell)


def _column(rows: Sequence[Mapping[str, Cell]], name: str) -> Floats | None:
    """A score of every network; None where it is not defined for all of them."""
    cells = [row[name] for row in rows]
    return None if any(cell is None for cell in cells) else np.array([_number(cell) for cell in cells])


def _spearman(one: NDArray[np.floating[Any]], other: Floats) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(one, other).statistic)


def _surrogates(encoding: Floats, scores: Mapping[str, Floats], quality: Floats) -> dict[str, float]:
    """Mean rank correlation of what a surrogate says of a half it has not seen: by encoding alone, and with scores."""
    variants = {"encoding": encoding} | {
        f"with {name}": np.column_stack([encoding, values]) for name, values in scores.items()
    }
    if len(scores) > 1:
        variants["with all"] = np.column_stack([encoding, *scores.values()])
    found: dict[str, list[float]] = {name: [] for name in variants}
    for split in range(NUM_SPLITS):
        order = np.random.default_rng(split).permutation(len(quality))
        seen, new = order[: len(order) // 2], order[len(order) // 2 :]
        warped = Warp(quality[seen]).apply(quality[seen])
        for name, features in variants.items():
            scaled = _scaled(features)
            fitted = GaussianProcesses(scaled[seen], warped, np.random.default_rng(split))
            found[name].append(_spearman(fitted.predict(scaled[new])[0], quality[new]))
    means = {name: float(np.mean(values)) for name, values in found.items()}
    for name, values in found.items():
        if name != "encoding":
            differences = np.array(values) - np.array(found["encoding"])
            means[f"{name}, gain se"] = float(differences.std(ddof=1) / NUM_SPLITS**0.5)
    return means


def _scaled(features: Floats) -> Floats:
    deviations = features.std(axis=0)
    varied = features[:, deviations > 1e-9]
    return np.asarray((varied - varied.mean(axis=0)) / varied.std(axis=0))
