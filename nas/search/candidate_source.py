"""Where candidates to choose among come from: a search space asked at random, mutated and recombined."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from search_spaces.candidate import Candidate, CandidateError, Value
from search_spaces.space import Choices, RandomSuggest, SearchSpace, V, replay

NUM_RANDOM = 500
"""Random candidates of every pool, the same ones for a whole study: encoding takes most of a proposal's time."""

NUM_CHILDREN = 200
"""Mutations and recombinations of good candidates, new ones for every proposal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Some candidates in columns.

    Attributes:
        choices: what makes each.
        keys: canonical ids; equal keys are one network.
        candidates: what the cost models take; of a search space, `Candidate`s.
        features: for surrogates, shape (candidates, features).
    """

    choices: Sequence[Choices]
    keys: Sequence[str]
    candidates: Sequence[Any]
    features: NDArray[np.float64]

    def at(self, positions: Sequence[int]) -> Options:
        """Some of them."""
        return Options(
            choices=[self.choices[position] for position in positions],
            keys=[self.keys[position] for position in positions],
            candidates=[self.candidates[position] for position in positions],
            features=self.features[np.asarray(positions, dtype=int)],
        )


class CandidateSource(Protocol):
    """What a sampler needs to know about a space; a table of known networks is one as well."""

    def describe(self, choices: Sequence[Choices]) -> Options:
        """The candidates that these choices make; choices that make none are left out."""
        ...

    def keys(self, choices: Sequence[Choices]) -> Sequence[str | None]:
        """The canonical id of each, without the work of describing it; None for choices that make no candidate."""
        ...

    def pool(self, parents: Sequence[Choices], rng: np.random.Generator) -> Options:
        """Distinct candidates to choose among; `parents` are good ones, empty at first."""
        ...


@dataclass(slots=True)
class SpaceSource:
    """Candidates of a search space of any size.

    Conditional choices need no care: the space itself asks, and an answer that a parent has not got,
    or that is not offered here, is drawn at random.

    Args:
        space: asked for candidates and their encodings.
        seed: of the random candidates that every pool has.
    """

    space: SearchSpace
    seed: int = 0
    _known: dict[tuple[tuple[str, Value], ...], tuple[Candidate, str] | None] = field(default_factory=dict)
    _features: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    _random: list[Choices] = field(default_factory=list)

    def describe(self, choices: Sequence[Choices]) -> Options:
        """See `CandidateSource`; each is made and encoded once."""
        found = [(each, made) for each in choices if (made := self._made(each)) is not None]
        features = np.array([self._encoded(*made) for _, made in found]) if found else np.zeros((0, 0))
        return Options(
            choices=[each for each, _ in found],
            keys=[made[1] for _, made in found],
            candidates=[made[0] for _, made in found],
            features=features,
        )

    def keys(self, choices: Sequence[Choices]) -> Sequence[str | None]:
        """See `CandidateSource`; nothing is encoded, which takes ten times as long as the rest."""
        return [None if made is None else made[1] for made in map(self._made, choices)]

    def pool(self, parents: Sequence[Choices], rng: np.random.Generator) -> Options:
        """Random candidates and, where there are parents, as many children as `NUM_CHILDREN`."""
        if not self._random:
            generator = random.Random(self.seed)
            self._random = [self._asked(RandomSuggest(generator)) for _ in range(NUM_RANDOM)]
        if not parents:
            return _distinct(self.describe(self._random))
        generator = random.Random(int(rng.integers(2**63)))
        children = []
        for _ in range(NUM_CHILDREN):
            one, other = generator.choice(parents), generator.choice(parents)
            children.append(self._asked(ChildSuggest(generator, one, other)))
        return _distinct(self.describe([*children, *self._random]))

    def _asked(self, suggest: RandomSuggest | ChildSuggest) -> Choices:
        candidate = self.space.sample(suggest)
        self._remember(suggest.choices, candidate)
        return suggest.choices

    def _made(self, choices: Choices) -> tuple[Candidate, str] | None:
        key = tuple(sorted(choices.items()))
        if key not in self._known:
            try:
                self._remember(choices, replay(self.space, choices))
            except CandidateError:
                self._known[key] = None
        return self._known[key]

    def _remember(self, choices: Choices, candidate: Candidate) -> None:
        key = tuple(sorted(choices.items()))
        if key not in self._known:
            self._known[key] = (candidate, candidate.candidate_id)

    def _encoded(self, candidate: Candidate, key: str) -> NDArray[np.float64]:
        if key not in self._features:
            self._features[key] = np.array(self.space.encode(candidate))
        return self._features[key]


MUTATED = 0.15
"""Probability with which a child's answer is neither parent's."""


@dataclass(slots=True)
class ChildSuggest:
    """Answers as one of two parents would, each question by itself, and now and then at random."""

    generator: random.Random
    one: Choices
    other: Choices
    choices: dict[str, Value] = field(default_factory=dict)

    def choose(self, name: str, options: Sequence[V]) -> V:
        """A parent's answer where it is offered; asking the same name twice returns the first answer."""
        if name not in self.choices:
            parent = self.one if self.generator.random() < 0.5 else self.other
            inherited = parent.get(name)
            is_mutated = self.generator.random() < MUTATED or inherited not in options
            self.choices[name] = (
                self.generator.choice(list(options))
                if is_mutated
                else next(option for option in options if option == inherited)
            )
        return self.choices[name]  # type: ignore[return-value]


def joined(one: Options, other: Options) -> Options:
    """Both in one, each network once."""
    if not other.keys:
        return one
    return _distinct(
        Options(
            choices=[*one.choices, *other.choices],
            keys=[*one.keys, *other.keys],
            candidates=[*one.candidates, *other.candidates],
            features=np.vstack([one.features, other.features]),
        )
    )


def _distinct(options: Options) -> Options:
    """Each network once, in the order in which it first came."""
    first: Mapping[str, int] = {key: at for at, key in reversed(list(enumerate(options.keys)))}
    return options.at(sorted(first.values()))
