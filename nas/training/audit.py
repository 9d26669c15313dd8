"""Looks for what makes a held-out score lie: copies across splits, rare classes, dead inputs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nas.training.data.splitting import example_digests
from nas.training.task import SplitName, Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

IMBALANCE_RATIO = 10.0
"""Largest class over smallest above which accuracy mostly reports the largest class."""

PASSAGE_TOKENS = 64
"""Length of a passage that is looked for in another split: longer than idioms, shorter than a licence."""
SEQUENCES_AT_ONCE = 4096
"""Of which every passage is hashed at a time: 50 MB for sequences of 512 tokens."""
MIN_COPIED_SHARE = 0.01
"""Copied passages that are worth a word."""

FindingKind = Literal[
    "duplicates", "conflicting_labels", "imbalance", "missing_class", "constant_inputs", "copied_text"
]
_SPLITS: tuple[SplitName, ...] = ("train", "val", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is odd about the data.

    Attributes:
        kind: what it is.
        where: split, or pair of splits, for instance `train/val`.
        count: examples (or classes, for `imbalance` and `missing_class`) concerned.
        num_checked: examples (or classes) looked at: those of the split on the right of a pair.
        detail: one line for a person.
    """

    kind: FindingKind
    where: str
    count: int
    num_checked: int
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.where}: {self.detail}"


def audit_splits(task: Task) -> tuple[Finding, ...]:
    """Everything odd about the splits, worst first; empty when nothing is.

    Looks at inputs and labels of all three splits, never at a model.
    """
    digests = {name: example_digests(task.split(name).inputs) for name in _SPLITS}
    findings = [finding for pair in combinations(_SPLITS, 2) for finding in _copies(task, digests, *pair)]
    if task.train.num_bytes is not None:
        findings += [finding for pair in combinations(_SPLITS, 2) for finding in _copied_text(task, *pair)]
    for name in _SPLITS:
        findings += _classes(task, name)
        findings += _constants(task, name)
    return tuple(findings)


def _copies(task: Task, digests: dict[SplitName, list[bytes]], left: SplitName, right: SplitName) -> list[Finding]:
    """Exact copies of examples of `left` among those of `right`, with the same or another label."""
    known = {digest: label.tobytes() for digest, label in zip(digests[left], task.split(left).labels, strict=True)}
    pairs = zip(digests[right], task.split(right).labels, strict=True)
    matches = [known[digest] == label.tobytes() for digest, label in pairs if digest in known]
    total, where = len(digests[right]), f"{left}/{right}"
    findings = []
    if matches:
        detail = f"{len(matches)} of {total} {right} examples also occur in {left}"
        findings.append(Finding(kind="duplicates", where=where, count=len(matches), num_checked=total, detail=detail))
    conflicts = matches.count(False)
    if conflicts:
        detail = f"{conflicts} of {total} {right} examples occur in {left} with another label"
        findings.append(
            Finding(kind="conflicting_labels", where=where, count=conflicts, num_checked=total, detail=detail)
        )
    return findings


def _copied_text(task: Task, left: SplitName, right: SplitName) -> list[Finding]:
    """Passages of `right` that occur anywhere in `left`: files quote each other, and share headers."""
    tokens, passages = task.split(left).inputs, _passage_hashes(task.split(right).inputs, PASSAGE_TOKENS)
    wanted, times = np.unique(passages, return_counts=True)
    is_known = np.zeros(len(wanted), dtype=bool)
    for start in range(0, len(tokens) if len(wanted) else 0, SEQUENCES_AT_ONCE):
        # Looking up the many among the few: the other way round the many would have to be sorted.
        known = _passage_hashes(tokens[start : start + SEQUENCES_AT_ONCE], 1)
        place = np.minimum(np.searchsorted(wanted, known), len(wanted) - 1)
        is_known[place[wanted[place] == known]] = True
    total, count = len(passages), int(times[is_known].sum())
    if count <= MIN_COPIED_SHARE * total:
        return []
    detail = f"{count} of {total} passages of {PASSAGE_TOKENS} tokens of {right} also occur in {left}"
    return [Finding(kind="copied_text", where=f"{left}/{right}", count=count, num_checked=total, detail=detail)]


def _passage_hashes(tokens: NDArray[Any], step: int) -> NDArray[np.uint64]:
    """A hash of each passage that begins at a multiple of `step` within its sequence; none for short sequences.

    The polynomial hash of Rabin and Karp (1987) modulo 2^64: differences of running sums give every window at once.
    """
    context = tokens.shape[1]
    if context < PASSAGE_TOKENS:
        return np.zeros(0, dtype=np.uint64)
    factor = np.full(context + 1, 0x9E3779B97F4A7C15, dtype=np.uint64)
    factor[0] = 1
    powers = np.cumprod(factor, dtype=np.uint64)
    sums = np.zeros((len(tokens), context + 1), dtype=np.uint64)
    np.cumsum((tokens.astype(np.uint64) + 1) * powers[:-1], axis=1, out=sums[:, 1:])
    starts = np.arange(0, context - PASSAGE_TOKENS + 1, step)
    # Brought to one power, so that the same passage has one hash wherever it stands.
    windows = (sums[:, starts + PASSAGE_TOKENS] - sums[:, starts]) * powers[context - starts]
    return np.asarray(windows.ravel())


def _classes(task: Task, name: SplitName) -> list[Finding]:
    """Classes that are missing or rare; of tokens most are rare, and that is no fault of the data."""
    if not task.class_names:
        return []
    counts = np.bincount(task.split(name).labels.ravel(), minlength=len(task.class_names))
    findings = []
    missing = [task.class_names[label] for label in np.flatnonzero(counts == 0)]
    if missing:
        detail = f"no example of {', '.join(missing)}"
        findings.append(
            Finding(kind="missing_class", where=name, count=len(missing), num_checked=len(counts), detail=detail)
        )
    present = counts[counts > 0]
    ratio = float(present.max() / present.min())
    if ratio > IMBALANCE_RATIO:
        rare = int((present * IMBALANCE_RATIO < present.max()).sum())
        largest = task.class_names[int(counts.argmax())]
        detail = (
            f"the largest class, {largest}, has {ratio:.0f} times the examples of the smallest; "
            f"always answering it scores {counts.max() / counts.sum():.3f}"
        )
        findings.append(Finding(kind="imbalance", where=name, count=rare, num_checked=len(counts), detail=detail))
    return findings


def _constants(task: Task, name: SplitName) -> list[Finding]:
    flat = task.split(name).inputs.reshape(len(task.split(name)), -1)
    count = int((flat == flat[:, :1]).all(axis=1).sum())
    if not count:
        return []
    detail = f"{count} of {len(flat)} examples have the same value everywhere"
    return [Finding(kind="constant_inputs", where=name, count=count, num_checked=len(flat), detail=detail)]
