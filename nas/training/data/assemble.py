"""From the arrays that a source read to a checked image classification task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nas.training.data.splitting import draw_per_class, identical_groups
from nas.training.task import Split, Task, TaskError, TaskSettings
from search_spaces.candidate import BlockSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_DATA_BYTES = 4 * 2**30
"""Decoded size of one array that is still accepted: held in memory, on edge-class machines too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledImages:
    """Images and labels as a source read them.

    Attributes:
        origin: the file or folder, for messages.
        images: NCHW, any number type.
        labels: (examples,), whole numbers.
    """

    origin: str
    images: NDArray[Any]
    labels: NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSource:
    """Everything that a source can offer; splits it does not have are drawn from train."""

    class_names: tuple[str, ...]
    train: LabelledImages
    val: LabelledImages | None = None
    test: LabelledImages | None = None


def image_task(settings: TaskSettings, source: ImageSource) -> Task:
    """Checks, splits and summarises the images of `source`.

    Raises:
        TaskError: for data that cannot be learnt or scored; the message names the file.
    """
    num_classes = len(source.class_names)
    if num_classes < 2:
        raise TaskError(f"{source.train.origin}: {num_classes} class(es) {source.class_names}; allowed: at least 2")
    parts = [part for part in (source.train, source.val, source.test) if part is not None]
    for part in parts:
        _check(part, num_classes, like=source.train)
    train = _split_of(source.train)
    empty = [source.class_names[label] for label in range(num_classes) if not (train.labels == label).any()]
    if empty:
        raise TaskError(f"{source.train.origin}: no train example of class(es) {empty}; allowed: at least one each")
    names, generator = source.class_names, np.random.default_rng(settings.seed)
    origin = source.train.origin
    if source.test is None:
        train, test = _set_aside(train, settings.test_share, "test", names, origin, generator)
    else:
        test = _split_of(source.test)
    if source.val is None:
        train, val = _set_aside(train, settings.val_share, "val", names, origin, generator)
    else:
        val = _split_of(source.val)
    if settings.max_train_examples is not None and settings.max_train_examples < len(train):
        train = _thin(train, settings.max_train_examples, names, generator)
    mean, std = channel_constants(train.inputs)
    _, channels, height, width = train.inputs.shape
    return Task(
        name=settings.name,
        kind="image_classification",
        input=BlockSpec.of("image", channels=channels, height=height, width=width),
        head=BlockSpec.of("classifier", classes=num_classes),
        metric="accuracy",
        direction="maximize",
        class_names=names,
        mean=mean,
        std=std,
        train=train,
        val=val,
        test=test,
    )


def channel_constants(images: NDArray[Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of NCHW images, in raw units.

    A channel that never changes gets a deviation of 1, so that it becomes 0 and not NaN.

    >>> channel_constants(np.array([[[[0, 2]]], [[[0, 2]]]], dtype=np.uint8))
    ((1.0,), (1.0,))
    """
    means, stds = [], []
    for channel in range(images.shape[1]):
        values = images[:, channel].astype(np.float64)
        means.append(float(values.mean()))
        stds.append(float(values.std()) or 1.0)
    return tuple(means), tuple(stds)


def _check(part: LabelledImages, num_classes: int, *, like: LabelledImages) -> None:
    """Refuses arrays that cannot be images with labels of `num_classes` classes."""
    images, labels, origin = part.images, part.labels, part.origin
    if images.ndim != 4 or 0 in images.shape:
        raise TaskError(f"{origin}: images of shape {images.shape}; allowed: at least one image, as N x C x H x W")
    if images.shape[1:] != like.images.shape[1:]:
        raise TaskError(
            f"{origin}: images of shape {images.shape[1:]}, but {like.origin} has {like.images.shape[1:]}; "
            "allowed: one shape (channels, height, width)"
        )
    if images.dtype.kind not in "buif":
        raise TaskError(f"{origin}: images of type {images.dtype}; allowed: numbers")
    if labels.ndim != 1 or labels.dtype.kind not in "ui":
        raise TaskError(
            f"{origin}: labels of shape {labels.shape}, type {labels.dtype}; allowed: one whole number each"
        )
    if len(labels) != len(images):
        raise TaskError(f"{origin}: {len(images)} images but {len(labels)} labels; allowed: one label for each image")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= num_classes:
        raise TaskError(f"{origin}: labels from {low} to {high}; allowed: 0 to {num_classes - 1}")
    if (images == images.flat[0]).all():
        raise TaskError(f"{origin}: every pixel is {images.flat[0]}; allowed: images that differ")


def _split_of(part: LabelledImages) -> Split:
    images = part.images
    if images.dtype != np.uint8:
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinity, and is refused next
            images = images.astype(np.uint8 if images.dtype.kind == "b" else np.float32)
        is_finite = np.isfinite(images).all(axis=(1, 2, 3))
        if not is_finite.all():
            raise TaskError(
                f"{part.origin}: image {int(np.argmin(is_finite))} holds NaN, infinity or a value beyond float32; "
                "allowed: finite numbers"
            )
    return Split(inputs=np.ascontiguousarray(images), labels=part.labels.astype(np.int64))


def _set_aside(
    split: Split, share: float, what: str, names: tuple[str, ...], origin: str, generator: np.random.Generator
) -> tuple[Split, Split]:
    """The rest, and `share` of each class; copies of one image stay on the same side."""
    counts = np.bincount(split.labels, minlength=len(names))
    quotas = [max(1, round(share * int(count))) for count in counts]
    taken = draw_per_class(split.labels, identical_groups(split.inputs), quotas, generator)
    for label, name in enumerate(names):
        of_class = split.labels == label
        if not (of_class & taken).any() or not (of_class & ~taken).any():
            raise TaskError(
                f"{origin}: class {name!r} has {int(counts[label])} distinct example(s) left, too few to set {share:g} "
                f"aside for {what}; add examples, or give {what} its own data"
            )
    return _pick(split, ~taken), _pick(split, taken)


def _thin(split: Split, maximum: int, names: tuple[str, ...], generator: np.random.Generator) -> Split:
    """At most `maximum` examples, each class in proportion to its size."""
    if maximum < len(names):
        raise TaskError(f"task: max_train_examples is {maximum}; allowed: at least one a class, {len(names)}")
    counts = np.bincount(split.labels, minlength=len(names))
    quotas = np.maximum(1, counts * maximum // len(split))
    while quotas.sum() > maximum:  # the floor of 1 for rare classes can overshoot
        quotas[int(np.argmax(quotas))] -= 1
    taken = draw_per_class(split.labels, np.arange(len(split)), [int(quota) for quota in quotas], generator)
    return _pick(split, taken)


def _pick(split: Split, mask: NDArray[np.bool_]) -> Split:
    return Split(inputs=split.inputs[mask], labels=split.labels[mask])
