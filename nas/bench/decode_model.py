"""A language decode step of 27.5 million parameters: one token through a hybrid of convolutions and attention.

Private to the bench. Layers are gated short convolutions and grouped-query attention, each followed by a gated
linear unit, after the pattern of Liquid AI's LFM2. Its state is explicit: it enters and leaves as tensors of fixed
size, so that the step is a pure function that every compiler takes. The token's embedding enters as a vector: a
look-up moves one row, the output projection with the same weights moves them all.

The network is registered as a candidate's head, as `search_spaces.build` asks, once per process (`install`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from search_spaces.candidate import BlockSpec, Candidate, TensorSpec
from search_spaces.space import Choices, Phase, Suggest

if TYPE_CHECKING:
    from torch import nn

SPACE, HEAD = "bench_decode", "bench_decode"
PHASE = "decode@512"
WIDTH, HIDDEN, VOCABULARY = 512, 1024, 14_336
NUM_HEADS, NUM_GROUPS, HEAD_CHANNELS = 8, 2, 64
CACHE_TOKENS, TAPS = 512, 3
LAYERS = ("conv", "conv", "conv", "attention", "conv", "conv", "conv", "attention")
NUM_CONVS, NUM_ATTENTIONS = LAYERS.count("conv"), LAYERS.count("attention")


def candidate() -> Candidate:
    """The step as a candidate of a space of its own."""
    image = BlockSpec.of("image", channels=WIDTH, height=1, width=1)
    return Candidate(space=SPACE, space_version=1, input=image, blocks=(), head=BlockSpec.of(HEAD))


def num_weight_bytes() -> int:
    """Bytes of all weights, each of which a step reads once.

    >>> round(num_weight_bytes() / 4 / 1e6, 1)
    27.5
    """
    unit = 3 * WIDTH * HIDDEN
    conv = 4 * WIDTH * WIDTH + TAPS * WIDTH
    attention = 2 * WIDTH * WIDTH + 2 * WIDTH * NUM_GROUPS * HEAD_CHANNELS
    norms = (2 * len(LAYERS) + 1) * WIDTH
    mixers = NUM_CONVS * conv + NUM_ATTENTIONS * attention
    return 4 * (mixers + len(LAYERS) * unit + norms + WIDTH * VOCABULARY)


class DecodeSpace:
    """The space of that one candidate: what a compile worker asks for its inputs."""

    name, version, task_kind = SPACE, 1, "language_modelling"

    def __init__(self, input: BlockSpec, head: BlockSpec) -> None:
        self.input, self.head = input, head

    def sample(self, suggest: Suggest) -> Candidate:
        """There is nothing to choose."""
        return candidate()

    def phases(self, candidate: Candidate) -> tuple[Phase, ...]:
        """One token at a cache of 512: its vector, its rotation, the mask of the cache, and the state."""
        cache = (NUM_ATTENTIONS, NUM_GROUPS, CACHE_TOKENS, HEAD_CHANNELS)
        shapes = {
            "x": (1, WIDTH),
            "cosine": (1, HEAD_CHANNELS // 2),
            "sine": (1, HEAD_CHANNELS // 2),
            "mask": (1, CACHE_TOKENS),
            "conv_state": (NUM_CONVS, WIDTH, TAPS - 1),
            "keys": cache,
            "values": cache,
        }
        inputs = tuple(TensorSpec(name=name, shape=shape) for name, shape in shapes.items())
        return (Phase(name=PHASE, inputs=inputs),)

    def encode(self, candidate: Candidate) -> tuple[float, ...]:
        """Nothing tells its candidates apart."""
        return ()

    def choices_of(self, candidate: Candidate) -> Choices:
        """None were made."""
        return {}

    def references(self) -> Mapping[str, Choices]:
        """The candidate itself."""
        return {"reference": {}}


def install() -> None:
    """Makes this process able to build the step; run in each worker before the first job."""
    from search_spaces import build, layers, registry

    if SPACE not in registry.SPACES:
        layers.BLOCKS[HEAD] = lambda block, shape: ((), shape)
        build.BLOCKS[HEAD] = lambda block, shape: make_step()
        build.NETWORKS[HEAD] = lambda candidate, modules, head: head
        registry.register(SPACE, DecodeSpace)


def make_step() -> nn.Module:
    """The torch module: `(x, cosine, sine, mask, conv_state, keys, values)` to logits and the new state."""
    from nas.bench.decode_layers import DecodeStep

    return DecodeStep()
