"""Small tasks and networks that the training tests share."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nas.training.data.assemble import ImageSource, LabelledImages, image_task
from nas.training.recipe import Recipe
from nas.training.task import Task, TaskSettings
from search_spaces.candidate import BlockSpec, Candidate

QUICK = Recipe(epochs=3, batch_size=16, num_threads=1, shift_pixels=1)


def bright_half_images(num_examples: int, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Noise of 1 x 6 x 6 whose brighter half (left, right, top, bottom) is the class: learnt in seconds."""
    generator = np.random.default_rng(seed)
    labels = np.arange(num_examples, dtype=np.int64) % 4
    images = generator.integers(0, 120, size=(num_examples, 1, 6, 6))
    halves = [np.s_[..., :3], np.s_[..., 3:], np.s_[..., :3, :], np.s_[..., 3:, :]]
    for index, label in enumerate(labels):
        images[index][halves[label]] += 90
    return images.astype(np.uint8), labels


def bright_half_task(num_examples: int = 240, settings: TaskSettings | None = None, seed: int = 0) -> Task:
    images, labels = bright_half_images(num_examples, seed)
    part = LabelledImages(origin="halves", images=images, labels=labels)
    source = ImageSource(class_names=("left", "right", "top", "bottom"), train=part)
    return image_task(settings or TaskSettings(), source)


def candidate_of(kind: str = "mixed", classes: int = 4) -> Candidate:
    return Candidate(
        space="tests",
        space_version=1,
        input=BlockSpec.of("image", channels=1, height=6, width=6),
        blocks=(BlockSpec.of(kind, width=8),),
        head=BlockSpec.of("classifier", classes=classes),
    )


class MixedNet(nn.Module):
    """Convolution, batch norm, dropout and attention: each has its own way to be irreproducible."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.drop = nn.Dropout(0.1)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.scale = nn.Parameter(torch.ones(1, width, 1, 1))
        self.head = nn.Linear(width * 36, classes)

    def forward(self, x_nchw: Tensor) -> Tensor:
        x_nchw = torch.relu(self.norm(self.stem(x_nchw))) * self.scale
        tokens_nld = x_nchw.flatten(2).transpose(1, 2)
        tokens_nld = tokens_nld + self.attention(tokens_nld, tokens_nld, tokens_nld, need_weights=False)[0]
        return self.head(self.drop(tokens_nld).flatten(1))


class NaNAtEvaluation(MixedNet):
    """Trains with a finite loss, and answers NaN once it is scored after a step."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__(width, classes)
        self.was_trained = False

    def forward(self, x_nchw: Tensor) -> Tensor:
        self.was_trained |= self.training
        outputs = super().forward(x_nchw)
        return outputs if self.training or not self.was_trained else outputs * float("nan")


def build_small(candidate: Candidate) -> nn.Module:
    """Builds the test networks; module level, so that a child process can import it."""
    width, classes = candidate.blocks[0].integer("width"), candidate.head.integer("classes")
    kinds: dict[str, type[MixedNet]] = {"mixed": MixedNet, "nan": NaNAtEvaluation}
    return kinds[candidate.blocks[0].kind](width, classes)
