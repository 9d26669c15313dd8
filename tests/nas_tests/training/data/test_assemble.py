from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from nas.training.audit import audit_splits
from nas.training.data.assemble import ImageSource, LabelledImages, channel_constants, image_task
from nas.training.task import TaskError, TaskSettings
from tests.nas_tests.training.small_tasks import bright_half_images

NAMES = ("left", "right", "top", "bottom")
IMAGES, LABELS = bright_half_images(80)
GOOD = LabelledImages(origin="some.npz", images=IMAGES, labels=LABELS)


def _with_nan(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    floats = images.astype(np.float32)
    floats[7, 0, 2, 2] = np.nan
    return floats


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (replace(GOOD, images=_with_nan(IMAGES)), "image 7 holds NaN"),
        (replace(GOOD, images=IMAGES.astype(np.float64) * 1e300), "beyond float32"),
        (replace(GOOD, images=np.full_like(IMAGES, 3)), "every pixel is 3"),
        (replace(GOOD, labels=LABELS[:-1]), "80 images but 79 labels"),
        (replace(GOOD, labels=LABELS + 1), "labels from 1 to 4; allowed: 0 to 3"),
        (replace(GOOD, labels=LABELS - 1), "labels from -1 to 2"),
        (replace(GOOD, labels=LABELS.astype(float)), "type float64"),
        (replace(GOOD, labels=np.stack([LABELS, LABELS], axis=1)), r"labels of shape \(80, 2\)"),
        (replace(GOOD, images=IMAGES[:, 0]), r"shape \(80, 6, 6\)"),
        (replace(GOOD, images=IMAGES[:0], labels=LABELS[:0]), "at least one image"),
        (replace(GOOD, images=IMAGES.astype("S3")), "allowed: numbers"),
        (replace(GOOD, labels=np.minimum(LABELS, 2)), r"no train example of class\(es\) \['bottom'\]"),
        (replace(GOOD, images=IMAGES[:6], labels=LABELS[:6]), "class '.*' has 1 distinct example"),
    ],
)
def test_arrays_that_cannot_be_learnt_are_refused_by_name(part: LabelledImages, message: str) -> None:
    with pytest.raises(TaskError, match=rf"^some\.npz: .*{message}") as caught:
        image_task(TaskSettings(), ImageSource(class_names=NAMES, train=part))
    assert "\n" not in str(caught.value)


def test_one_class_is_not_a_task() -> None:
    part = replace(GOOD, labels=np.zeros_like(LABELS))
    with pytest.raises(TaskError, match="allowed: at least 2"):
        image_task(TaskSettings(), ImageSource(class_names=("only",), train=part))


def test_a_test_split_of_another_image_size_is_refused() -> None:
    other = replace(GOOD, origin="test.npz", images=IMAGES[..., :5])
    with pytest.raises(TaskError, match=r"^test\.npz: .*some\.npz"):
        image_task(TaskSettings(), ImageSource(class_names=NAMES, train=GOOD, test=other))


def test_splits_that_the_source_has_are_used_as_they_are() -> None:
    images, labels = bright_half_images(12, seed=5)
    own = LabelledImages(origin="own", images=images, labels=labels)
    task = image_task(TaskSettings(), ImageSource(class_names=NAMES, train=GOOD, val=own, test=own))
    assert (task.val.inputs == images).all() and (task.test.labels == labels).all()
    assert len(task.train) == 80


def test_copies_of_an_image_stay_on_one_side() -> None:
    part = replace(GOOD, images=np.concatenate([IMAGES] * 3), labels=np.concatenate([LABELS] * 3))
    task = image_task(TaskSettings(), ImageSource(class_names=NAMES, train=part))
    assert not [finding for finding in audit_splits(task) if finding.kind == "duplicates"]
    assert len(task.train) + len(task.val) + len(task.test) == 240


def test_a_channel_that_never_changes_becomes_zero_and_not_nan() -> None:
    images = np.concatenate([IMAGES, np.full_like(IMAGES, 9)], axis=1)
    assert channel_constants(images)[1][1] == 1.0


def test_too_few_train_examples_for_the_classes_are_refused() -> None:
    with pytest.raises(TaskError, match="max_train_examples is 3; allowed: at least one a class, 4"):
        image_task(TaskSettings(max_train_examples=3), ImageSource(class_names=NAMES, train=GOOD))
