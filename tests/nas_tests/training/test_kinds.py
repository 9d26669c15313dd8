from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from nas.training.image_kind import shift_and_mirror, standardise_images
from nas.training.kinds import KINDS, kind_of
from nas.training.recipe import Recipe
from nas.training.task import TaskError
from tests.nas_tests.training.small_tasks import bright_half_task

IMAGES = torch.arange(5 * 2 * 4 * 6, dtype=torch.float32).reshape(5, 2, 4, 6)


def test_standardised_train_inputs_have_mean_0_and_deviation_1() -> None:
    task = bright_half_task()
    inputs = standardise_images(task, task.train.inputs)
    assert float(inputs.mean()) == pytest.approx(0, abs=1e-5)
    assert float(inputs.std()) == pytest.approx(1, abs=1e-3)


def test_a_shift_moves_pixels_and_repeats_the_edge() -> None:
    moved = shift_and_mirror(IMAGES, Recipe(shift_pixels=2), torch.Generator().manual_seed(1))
    offsets = set()
    for image, result in zip(IMAGES.numpy(), moved.numpy(), strict=True):
        padded = np.pad(image, ((0, 0), (2, 2), (2, 2)), mode="edge")
        matches = [
            (dy, dx) for dy in range(5) for dx in range(5) if (padded[:, dy : dy + 4, dx : dx + 6] == result).all()
        ]
        assert len(matches) == 1
        offsets.add(matches[0])
    assert len(offsets) > 1


def test_a_mirror_turns_some_images_and_leaves_the_others() -> None:
    moved = shift_and_mirror(IMAGES, Recipe(shift_pixels=0, mirror=True), torch.Generator().manual_seed(0))
    is_same = [bool((a == b).all()) for a, b in zip(moved, IMAGES, strict=True)]
    is_mirrored = [bool((a == b.flip(-1)).all()) for a, b in zip(moved, IMAGES, strict=True)]
    assert all(same != mirrored for same, mirrored in zip(is_same, is_mirrored, strict=True))
    assert any(is_same) and any(is_mirrored)


def test_without_shift_and_mirror_nothing_changes() -> None:
    assert shift_and_mirror(IMAGES, Recipe(shift_pixels=0), torch.Generator()) is IMAGES


def test_an_unknown_kind_of_task_lists_the_known_ones() -> None:
    with pytest.raises(TaskError, match=r"'sorting'.*image_classification"):
        kind_of(replace(bright_half_task(), kind="sorting"))
    assert kind_of(bright_half_task()) is KINDS["image_classification"]
