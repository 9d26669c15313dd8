"""Ways to run the steps of a training: the slow one, and faster ones that must first be shown to be equal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPath:
    """A way to run a training step.

    Attributes:
        prepare: network -> what is called in a step; it shares its weights with the network, which stays what is
            scored and saved.
        context: what loss and gradient are computed in.
    """

    prepare: Callable[[nn.Module], nn.Module] = lambda model: model
    context: Callable[[], AbstractContextManager[Any]] = nullcontext


SLOW = TrainingPath()
"""Contiguous tensors, float32, one operation after the other."""

FAST_PATHS: dict[str, TrainingPath] = {
    # Tensors without four axes stay as they are.
    "channels_last": TrainingPath(
        prepare=lambda model: model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    ),
    "bfloat16": TrainingPath(context=lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "compiled": TrainingPath(prepare=lambda model: torch.compile(model)),  # type: ignore[arg-type,return-value]
}
"""By name, as `Recipe.fast_path` has it."""


def path_of(name: str | None) -> TrainingPath:
    """The path of that name; None is the slow one."""
    return SLOW if name is None else FAST_PATHS[name]
