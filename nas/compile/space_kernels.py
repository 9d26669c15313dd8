"""The kernels of a whole space: few candidates that hold them all, and how much of the space's work each carries."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nas.compile.kernels import KernelTask
from nas.phases import phase_names
from search_spaces.candidate import Candidate
from search_spaces.layer import Signature
from search_spaces.layers import layers_of
from search_spaces.space import RandomSuggest, SearchSpace, replay

NUM_SAMPLES = 1000
"""Random candidates that stand for the space: a kernel that one in a hundred needs is missed by 4 in 100,000."""
_SEED = 20_260_601
_MOST_EPILOGUE = 0.6
"""Operations beyond the multiply-accumulates (bias, activation, residual), as a share of those, of a thin kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceWork:
    """What random candidates of a space do.

    Attributes:
        cover: candidates that between them have every layer of the sample, and the references.
        share_by_macs: for a layer's number of MACs, the share of all MACs that layers of that size do.
    """

    cover: tuple[Candidate, ...]
    share_by_macs: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceKernel:
    """A compiled kernel of a space.

    Attributes:
        task: the kernel; heavy when it is in any of the networks it was seen in.
        work_share: its share of the MACs of random candidates, 0 for a kernel without any.
    """

    task: KernelTask
    work_share: float


def survey(
    space: SearchSpace, phases: Sequence[str] | None = None, num_samples: int = NUM_SAMPLES, seed: int = _SEED
) -> SpaceWork:
    """Looks at random candidates, at their layers only: nothing is built.

    Args:
        space: whose candidates.
        phases: whose layers, each phase as often as the others; None means all of the space's.
        num_samples, seed: of the random candidates.
    """
    names = tuple(phases or phase_names(space))
    generator = random.Random(seed)
    candidates = [replay(space, choices) for choices in space.references().values()]
    candidates += [space.sample(RandomSuggest(generator)) for _ in range(num_samples)]
    signatures: list[frozenset[Signature]] = []
    macs: Counter[int] = Counter()
    for candidate in candidates:
        layers = [layer for name in names for layer in layers_of(candidate, name)]
        signatures.append(frozenset(layer.signature for layer in layers))
        for layer in layers:
            macs[layer.num_macs] += layer.num_macs
    total = sum(macs.values()) or 1
    return SpaceWork(
        cover=tuple(candidates[index] for index in cover(signatures)),
        share_by_macs={size: work / total for size, work in macs.items() if size},
    )


def cover(sets: Sequence[frozenset[Signature]]) -> list[int]:
    """Indices of few sets whose union is that of all: the set that adds most, again and again (Chvatal 1979).

    >>> cover([frozenset({("a",)}), frozenset({("a",), ("b",)}), frozenset({("c",)})])
    [1, 2]
    """
    missing = frozenset().union(*sets)
    chosen = []
    while missing:
        best = max(range(len(sets)), key=lambda index: (len(sets[index] & missing), -index))
        chosen.append(best)
        missing -= sets[best]
    return chosen


def space_kernels(
    networks: Iterable[Sequence[KernelTask]], share_by_macs: Mapping[int, float]
) -> tuple[SpaceKernel, ...]:
    """The distinct kernels of the networks, those that carry most of the space's work first.

    A kernel is matched to layers by its size: its operations are two a multiply-accumulate and its epilogue's.
    Kernels of one size share the work of that size by how often they were seen.
    """
    uses: Counter[str] = Counter()
    tasks: dict[str, KernelTask] = {}
    for network in networks:
        for task in network:
            uses[task.key] += task.num_uses
            known = tasks.get(task.key, task)
            tasks[task.key] = replace(task, is_heavy=task.is_heavy or known.is_heavy)
    sizes = {key: matching_macs(task.num_operations, share_by_macs) for key, task in tasks.items()}
    uses_of_size: Counter[int] = Counter()
    for key, size in sizes.items():
        uses_of_size[size or 0] += uses[key]
    found = []
    for key, task in tasks.items():
        size = sizes[key]
        share = 0.0 if size is None else share_by_macs[size] * uses[key] / uses_of_size[size]
        found.append(SpaceKernel(task=task, work_share=share))
    return tuple(sorted(found, key=lambda each: (not each.task.is_heavy, -each.work_share, each.task.key)))


def matching_macs(num_operations: float, sizes: Iterable[int]) -> int | None:
    """The largest number of MACs that so many operations can hold; None where they are too many for any.

    >>> matching_macs(2100.0, [500, 1000, 1100]), matching_macs(3.0, [500])
    (1000, None)
    """
    fitting = [size for size in sizes if 2 * size <= num_operations <= 2 * size * (1 + _MOST_EPILOGUE)]
    return max(fitting, default=None)
