"""What a search space is: how a candidate is chosen, timed and encoded."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from search_spaces.candidate import Candidate, CandidateError, TensorSpec, Value

V = TypeVar("V", int, float, str, bool)

Choices = Mapping[str, Value]
"""Every answer a space was given while it made one candidate, by the name of the choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A named entry point of a network that is compiled and timed, for instance `infer`."""

    name: str
    inputs: tuple[TensorSpec, ...]


class Suggest(Protocol):
    """Answers a space's questions; Optuna trials, random generators and replays all fit."""

    def choose(self, name: str, options: Sequence[V]) -> V:
        """One of `options`, whose order means nothing unless they are numbers."""
        ...


class SearchSpace(Protocol):
    """A family of networks for one kind of task.

    A space is made by its factory in `registry.py` from the task's input and head, so that
    input size, channels and classes come from the data.
    """

    name: str
    version: int
    task_kind: str
    """Which kind of task it needs: `image_classification`, `language_modelling`, ..."""

    def sample(self, suggest: Suggest) -> Candidate:
        """Asks `suggest` for every choice and returns the canonical candidate."""
        ...

    def phases(self, candidate: Candidate) -> tuple[Phase, ...]:
        """The entry points to compile and time, the most important first."""
        ...

    def encode(self, candidate: Candidate) -> tuple[float, ...]:
        """A vector of fixed length for surrogate models; equal candidates have equal vectors."""
        ...

    def choices_of(self, candidate: Candidate) -> Choices:
        """The choices that make `candidate`: the inverse of `sample`.

        Raises:
            CandidateError: this space cannot make it.
        """
        ...

    def references(self) -> Mapping[str, Choices]:
        """Named starting points; the first one is the reference a default budget comes from."""
        ...


@dataclass(slots=True)
class RandomSuggest:
    """Answers every question uniformly at random, and remembers the answers."""

    generator: random.Random
    choices: dict[str, Value] = field(default_factory=dict)

    def choose(self, name: str, options: Sequence[V]) -> V:
        """A uniform draw; asking the same name twice returns the first answer."""
        if name not in self.choices:
            self.choices[name] = self.generator.choice(list(options))
        return self.choices[name]  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class ReplaySuggest:
    """Answers from recorded choices; a missing or impossible answer is refused by name."""

    choices: Choices

    def choose(self, name: str, options: Sequence[V]) -> V:
        """The option that equals the recorded answer: 32 where a table made 32.0 of it, so that ids agree."""
        if name not in self.choices:
            raise CandidateError(f"choices: {name!r} is missing; allowed: {list(options)}")
        value = self.choices[name]
        if value not in options:
            raise CandidateError(f"choices: {name!r} is {value!r}; allowed: {list(options)}")
        return next(option for option in options if option == value)


def replay(space: SearchSpace, choices: Choices) -> Candidate:
    """The candidate that `choices` make in `space`."""
    return space.sample(ReplaySuggest(choices))


def first_of_each_kind(phases: Sequence[str]) -> list[str]:
    """Of phases such as `decode@512` and `decode@256` the first, which is the most important of its kind.

    >>> first_of_each_kind(["decode@512", "prefill@512", "decode@256", "prefill@256"])
    ['decode@512', 'prefill@512']
    """
    found: dict[str, str] = {}
    for phase in phases:
        found.setdefault(phase.partition("@")[0], phase)
    return list(found.values())
