"""From texts, by domain, to a checked language modelling task: split, tokens, sequences."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nas.training.data.byte_pairs import NUM_BYTES, Bytes, Encoding, learn_byte_pairs
from nas.training.data.text_files import TextFile
from nas.training.data.text_splitting import Piece, Pieces, split_texts
from nas.training.task import Split, SplitName, Task, TaskError, TaskSettings
from search_spaces.candidate import BlockSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFAULT_CONTEXT = 512
"""Tokens of a sequence where the settings have none."""

MIN_SEQUENCES = 2
"""Of each domain in each split: one alone has no spread."""

MIN_GROUPS, NUM_BLOCKS = 8, 16
"""With fewer files than `MIN_GROUPS` in a domain's split, each stretch of a sixteenth of it counts as a group of its
own (batch means): parts of one book are alike, so the interval is then a little too narrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One kind of text.

    Attributes:
        name: in scores.
        origin: file or folder, for messages.
        files: at least one.
    """

    name: str
    origin: str
    files: tuple[TextFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sequences:
    """Sequences of one domain in one split; groups are numbered from 0."""

    inputs: NDArray[Any]
    labels: NDArray[Any]
    groups: NDArray[np.int64]


def language_task(settings: TaskSettings, domains: Sequence[Domain]) -> Task:
    """Splits by file, learns the vocabulary from train where it is not bytes, and cuts into sequences.

    Copies of a file count once, for the first domain that has it. The texts of a split and domain are laid end
    to end and cut every `context` tokens; each position predicts the next token, so that every token but the
    first, and what is left over at the end, is predicted exactly once.

    Raises:
        TaskError: too little text for a split, or a vocabulary that the text does not fill; names the origin.
    """
    context = settings.context or DEFAULT_CONTEXT
    pieces = [
        split_texts(domain.files, val_share=settings.val_share, test_share=settings.test_share, seed=settings.seed)
        for domain in _without_copies(domains)
    ]
    encoding = _encoding(settings.vocabulary or NUM_BYTES, pieces)
    limits: dict[SplitName, int | None] = {
        "train": settings.max_train_examples, "val": settings.max_val_examples, "test": settings.max_test_examples
    }  # fmt: skip
    splits: dict[SplitName, Split] = {}
    for number, (name, limit) in enumerate(limits.items()):
        generator = np.random.default_rng([settings.seed, number])
        parts = [
            _sequences(encoding, part[name], context, f"{domain.origin}: {name}")
            for domain, part in zip(domains, pieces, strict=True)
        ]
        splits[name] = _joined(parts, encoding, limit, generator)
    vocabulary = encoding.vocabulary
    return Task(
        name=settings.name,
        kind="language_modelling",
        input=BlockSpec.of("text", context=context, vocabulary=vocabulary),
        head=BlockSpec.of("language_model", vocabulary=vocabulary),
        metric="bits_per_byte",
        direction="minimize",
        class_names=(),
        mean=(),
        std=(),
        train=splits["train"],
        val=splits["val"],
        test=splits["test"],
        domains=tuple(domain.name for domain in domains),
        tokenizer=encoding.json,
    )


def _without_copies(domains: Sequence[Domain]) -> list[Domain]:
    known: dict[str, str] = {}
    result = []
    for domain in domains:
        files = []
        for file in domain.files:
            digest = file.digest
            if digest not in known:
                files.append(file)
            known.setdefault(digest, domain.name)
        if not files:
            raise TaskError(
                f"{domain.origin}: everything in domain {domain.name!r} is in domain"
                f" {known[domain.files[0].digest]!r} as well; allowed: domains with text of their own"
            )
        result.append(Domain(name=domain.name, origin=domain.origin, files=tuple(files)))
    return result


def _encoding(vocabulary: int, pieces: Sequence[Pieces]) -> Encoding:
    if vocabulary == NUM_BYTES:
        return Bytes()
    # In turn from each domain, so that a large one does not use up what is learnt from.
    turns = itertools.zip_longest(*(part["train"] for part in pieces))
    return learn_byte_pairs((piece.content for turn in turns for piece in turn if piece is not None), vocabulary)


def _sequences(encoding: Encoding, pieces: Sequence[Piece], context: int, origin: str) -> _Sequences:
    """Every whole sequence of the pieces laid end to end.

    Raises:
        TaskError: fewer than `MIN_SEQUENCES`.
    """
    encoded = encoding.encode([piece.content for piece in pieces])
    tokens = np.concatenate(encoded) if encoded else np.zeros(0, dtype=np.uint8)
    count = (len(tokens) - 1) // context
    if count < MIN_SEQUENCES:
        raise TaskError(
            f"{origin} has {len(tokens)} tokens; allowed: {MIN_SEQUENCES * context + 1} or more,"
            f" {MIN_SEQUENCES} sequences of task.context = {context}; give more text or a shorter context"
        )
    starts = np.arange(count) * context
    ends = np.cumsum([len(each) for each in encoded])
    files = np.searchsorted(ends, starts, side="right")
    blocks = np.arange(count) // max(1, count // NUM_BLOCKS)
    is_few = len(np.unique(files)) < MIN_GROUPS
    _, groups = np.unique(files * (count + 1) + blocks if is_few else files, return_inverse=True)
    whole = tokens[: count * context + 1]
    return _Sequences(
        inputs=whole[:-1].reshape(count, context), labels=whole[1:].reshape(count, context), groups=groups
    )


def _joined(
    parts: Sequence[_Sequences], encoding: Encoding, limit: int | None, generator: np.random.Generator
) -> Split:
    """The sequences of all domains in random order, at most `limit`."""
    sizes = [len(part.groups) for part in parts]
    domains = np.repeat(np.arange(len(parts)), sizes)
    before = np.cumsum([0, *(int(part.groups.max()) + 1 for part in parts)])
    groups = np.concatenate([part.groups + offset for part, offset in zip(parts, before, strict=False)])
    inputs, labels = (np.concatenate([getattr(part, name) for part in parts]) for name in ("inputs", "labels"))
    quotas = even_quotas(sizes, limit)
    chosen = np.concatenate(
        [generator.permutation(np.flatnonzero(domains == number))[:quota] for number, quota in enumerate(quotas)]
    )
    chosen = generator.permutation(chosen)
    return Split(
        inputs=inputs[chosen],
        labels=labels[chosen],
        groups=groups[chosen].astype(np.int64),
        domains=domains[chosen].astype(np.int64),
        num_bytes=encoding.bytes_of(labels[chosen]).sum(axis=1, dtype=np.int64),
    )


def even_quotas(sizes: Sequence[int], limit: int | None) -> list[int]:
    """How many to take of each domain: the same of each, and what a small one lacks from the larger.

    >>> even_quotas([100, 3, 50], 23), even_quotas([4, 5], None)
    ([10, 3, 10], [4, 5])
    """
    if limit is None or limit >= sum(sizes):
        return list(sizes)
    quotas = [0] * len(sizes)
    left = limit
    for position, number in enumerate(sorted(range(len(sizes)), key=lambda number: (sizes[number], number))):
        quotas[number] = min(sizes[number], left // (len(sizes) - position))
        left -= quotas[number]
    return quotas
