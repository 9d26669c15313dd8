"""Search spaces by name: a plain dict from name to factory, and one to the data that each is described for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleData:
    """Input and head of data that a space is described for when none is at hand."""

    input: BlockSpec
    head: BlockSpec

    @property
    def sizes(self) -> Mapping[str, int]:
        """Every size of the input and the head, by name: what `resized` can change."""
        options = (*self.input.options, *self.head.options)
        return {name: value for name, value in options if isinstance(value, int)}

    def resized(self, sizes: Mapping[str, int]) -> ExampleData:
        """With the sizes of `sizes` that the input or the head has; the others mean nothing to it.

        >>> text_of(context=512, vocabulary=256).resized({"context": 64, "height": 8}).input.options
        (('context', 64), ('vocabulary', 256))
        """

        def resize(spec: BlockSpec) -> BlockSpec:
            return replace(spec, options=tuple((name, sizes.get(name, value)) for name, value in spec.options))

        return ExampleData(input=resize(self.input), head=resize(self.head))


def text_of(context: int, vocabulary: int) -> ExampleData:
    """Text for a language model."""
    return ExampleData(
        input=BlockSpec.of("text", context=context, vocabulary=vocabulary),
        head=BlockSpec.of("language_model", vocabulary=vocabulary),
    )


EXAMPLES: dict[str, ExampleData] = {
    "conv_attention": ExampleData(
        input=BlockSpec.of("image", channels=1, height=8, width=8), head=BlockSpec.of("classifier", classes=10)
    ),
    "hybrid_language": text_of(context=512, vocabulary=256),
    # The vocabulary of LFM2 (Liquid AI 2025, model configuration).
    "hybrid_language_350m": text_of(context=4096, vocabulary=65_536),
    "hybrid_language_1b2": text_of(context=4096, vocabulary=65_536),
    "hybrid_vision_language": ExampleData(
        input=BlockSpec.of("image_text", channels=3, context=48, height=64, vocabulary=256, width=64),
        head=BlockSpec.of("vision_language_model", vocabulary=256),
    ),
}
"""A line for each space of `SPACES` that ships with the package."""


def register(name: str, factory: SpaceFactory, example: ExampleData | None = None) -> None:
    """Adds a space under `name`.

    Args:
        name: a new one.
        factory: makes it for a task's data.
        example: what it is described for when no data is at hand; without, `example_space` refuses it.

    Raises:
        CandidateError: the name is taken; nothing is replaced silently.
    """
    if name in SPACES:
        raise CandidateError(f"space {name!r} is already registered; choose another name")
    SPACES[name] = factory
    if example is not None:
        EXAMPLES[name] = example


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
    return _factory(name)(input, head)


def example_space(name: str, sizes: Mapping[str, int]) -> SearchSpace:
    """The space `name` for its example data, with those of `sizes` that the data has.

    Raises:
        CandidateError: an unknown name, a space without an example, or sizes that it cannot serve.

    >>> example_space("hybrid_language", {"context": 64}).name
    'hybrid_language'
    """
    factory = _factory(name)
    if name not in EXAMPLES:
        raise CandidateError(f"space {name!r} has no example data to be described for; give `register` some")
    data = EXAMPLES[name].resized(sizes)
    return factory(data.input, data.head)


def _factory(name: str) -> SpaceFactory:
    if name not in SPACES:
        raise CandidateError(f"space {name!r} is unknown; known: {sorted(SPACES)}")
    return SPACES[name]
