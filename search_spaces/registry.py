"""Search spaces by name: a plain dict from name to factory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from search_spaces.candidate import BlockSpec, CandidateError
from search_spaces.conv_attention import ConvAttentionSpace
from search_spaces.hybrid_language import SCALES, HybridLanguageSpace
from search_spaces.hybrid_vision_language import HybridVisionLanguageSpace
from search_spaces.space import SearchSpace

SpaceFactory = Callable[[BlockSpec, BlockSpec], SearchSpace]
"""Makes a space from a task's input and head; refuses those that it cannot serve with `CandidateError`."""

SPACES: dict[str, SpaceFactory] = {
    "conv_attention": ConvAttentionSpace,
    **{name: partial(HybridLanguageSpace, name=name) for name in SCALES},
    "hybrid_vision_language": HybridVisionLanguageSpace,
}
"""Every known space; add one with `register`, or with a line here when it ships with the package."""


def register(name: str, factory: SpaceFactory) -> None:
    """Adds a space under `name`.

    Raises:
        CandidateError: the name is taken; nothing is replaced silently.
    """
    if name in SPACES:
        raise CandidateError(f"space {name!r} is already registered; choose another name")
    SPACES[name] = factory


def task_kind_of(name: str) -> str | None:
    """Which kind of task the space `name` is for, before there is a task; None for an unknown space.

    A factory is a class, a `functools.partial` of one, or a function with an attribute `task_kind`.

    >>> task_kind_of("conv_attention")
    'image_classification'
    """
    factory = SPACES.get(name)
    kind = getattr(getattr(factory, "func", factory), "task_kind", None)
    return kind if isinstance(kind, str) else None


def make_space(name: str, input: BlockSpec, head: BlockSpec) -> SearchSpace:
    """The space `name` for a task's input and head.

    Raises:
        CandidateError: an unknown name (the known ones are listed), or an input or head that the space cannot serve.

    >>> image = BlockSpec.of("image", channels=1, height=8, width=8)
    >>> make_space("conv_attention", image, BlockSpec.of("classifier", classes=10)).task_kind
    'image_classification'
    """
    if name not in SPACES:
        raise CandidateError(f"space {name!r} is unknown; known: {sorted(SPACES)}")
    return SPACES[name](input, head)
