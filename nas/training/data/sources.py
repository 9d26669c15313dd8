"""The registry of data sources: name to loader, kind of task, and the settings that it does not use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nas.training.data.digits import load_digits_task
from nas.training.data.easy_vqa import load_easy_vqa
from nas.training.data.fashion_mnist import load_fashion_mnist
from nas.training.data.image_folder import load_image_folder
from nas.training.data.npz import load_npz
from nas.training.data.python_source import load_python_source
from nas.training.data.sequence_toy import load_sequence_toy
from nas.training.data.text import load_text
from nas.training.data.vqa_folder import load_vqa_folder
from nas.training.task import Task, TaskError, TaskSettings

_OF_TEXT = ("domains", "context", "vocabulary", "max_val_examples", "max_test_examples")
_OF_IMAGES = ("test_path", "resize")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """One source of data.

    Attributes:
        load: settings -> checked and split task.
        kind: of that task.
        also_for: further kinds of task whose spaces can serve it: its inputs and outputs are the same.
        unused: settings that mean nothing to it; setting one is an error, so that none is silently ignored.
    """

    load: Callable[[TaskSettings], Task]
    kind: str
    unused: tuple[str, ...]
    also_for: tuple[str, ...] = ()


SOURCES: dict[str, DataSource] = {
    "digits": DataSource(
        load=load_digits_task, kind="image_classification", unused=("path", "test_path", "resize", *_OF_TEXT)
    ),
    "fashion-mnist": DataSource(
        load=load_fashion_mnist, kind="image_classification", unused=("test_path", "resize", *_OF_TEXT)
    ),
    "npz": DataSource(load=load_npz, kind="image_classification", unused=_OF_TEXT),
    "image-folder": DataSource(load=load_image_folder, kind="image_classification", unused=("test_path", *_OF_TEXT)),
    "python-source": DataSource(
        load=load_python_source, kind="language_modelling", unused=("path", "domains", *_OF_IMAGES)
    ),
    "text": DataSource(load=load_text, kind="language_modelling", unused=_OF_IMAGES),
    "sequence-toy": DataSource(
        load=load_sequence_toy,
        kind="checked_sequences",
        also_for=("language_modelling",),
        unused=("path", "domains", "vocabulary", *_OF_IMAGES),
    ),
    "easy-vqa": DataSource(
        load=load_easy_vqa, kind="visual_question_answering", unused=("path", "test_path", "domains", "vocabulary")
    ),
    "vqa-folder": DataSource(
        load=load_vqa_folder, kind="visual_question_answering", unused=("test_path", "domains", "vocabulary")
    ),
}


def load_task(settings: TaskSettings) -> Task:
    """Loads, checks and splits the data that `settings` name.

    Raises:
        TaskError: an unknown source (the known ones are listed), a setting that the source does not
            have, or data that cannot be used.
    """
    if settings.name not in SOURCES:
        raise TaskError(f"task: unknown data set {settings.name!r}; allowed: {', '.join(sorted(SOURCES))}")
    source = SOURCES[settings.name]
    for key in source.unused:
        if getattr(settings, key) is not None:
            raise TaskError(
                f"task {settings.name!r}: {key} is {getattr(settings, key)!r}, which it does not use; leave it out"
            )
    return source.load(settings)


def require_kind(settings: TaskSettings, kind: str, space: str) -> None:
    """Refuses data of another kind than a space is made for, before anything is read.

    Args:
        settings: the data.
        kind: that the space needs.
        space: its name, for the message.

    Raises:
        TaskError: lists the sources that fit.
    """
    source = SOURCES.get(settings.name)
    if source is not None and kind not in (source.kind, *source.also_for):
        fits = (name for name, each in SOURCES.items() if kind in (each.kind, *each.also_for))
        fitting = ", ".join(sorted(fits)) or "none so far"
        raise TaskError(
            f"task {settings.name!r} is {source.kind.replace('_', ' ')}, but space {space!r} needs"
            f" {kind.replace('_', ' ')}; data sources that fit: {fitting}"
        )
