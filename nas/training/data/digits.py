"""The 1797 handwritten digits of 8 x 8 pixels that scikit-learn carries within."""

from __future__ import annotations

import numpy as np

from nas.training.data.assemble import ImageSource, LabelledImages, image_task
from nas.training.task import Task, TaskSettings


def load_digits_task(settings: TaskSettings) -> Task:
    """All 1797 images (values 0 to 16), split by `settings`; nothing is downloaded."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = LabelledImages(
        origin="digits", images=digits.images[:, None].astype(np.uint8), labels=digits.target.astype(np.int64)
    )
    return image_task(settings, ImageSource(class_names=tuple("0123456789"), train=images))
