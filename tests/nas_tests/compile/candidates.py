"""Small candidates of the space `conv_attention` for 8x8 images."""

from __future__ import annotations

from search_spaces.candidate import BlockSpec, Candidate

STEM = BlockSpec.of("stem", stride=1, width=32)
ATTENTION = BlockSpec.of("attention")
CONVNEXT = BlockSpec.of("convnext")
RESIDUAL = BlockSpec.of("inverted_residual", kernel=3, expansion=2)


def make_candidate(*blocks: BlockSpec) -> Candidate:
    """A network of the stem, `blocks` and a classifier of ten classes."""
    return Candidate(
        space="conv_attention",
        space_version=1,
        input=BlockSpec.of("image", channels=1, height=8, width=8),
        blocks=(STEM, *blocks),
        head=BlockSpec.of("classifier", classes=10),
    )


SHALLOW = make_candidate(ATTENTION)
"""Convolution, batch norm, ReLU, attention."""

DEEP = make_candidate(RESIDUAL, ATTENTION)
"""The kernels of `SHALLOW` behind a block more, so that TVM numbers its variables otherwise."""
