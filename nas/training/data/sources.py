"""The registry of data sources: name to loader."""

from __future__ import annotations

from collections.abc import Callable

from nas.training.data.digits import load_digits_task
from nas.training.data.fashion_mnist import load_fashion_mnist
from nas.training.data.image_folder import load_image_folder
from nas.training.data.npz import load_npz
from nas.training.task import Task, TaskError, TaskSettings

SOURCES: dict[str, Callable[[TaskSettings], Task]] = {
    "digits": load_digits_task,
    "fashion-mnist": load_fashion_mnist,
    "npz": load_npz,
    "image-folder": load_image_folder,
}

_UNUSED: dict[str, tuple[str, ...]] = {
    "digits": ("path", "test_path", "resize"),
    "fashion-mnist": ("test_path", "resize"),
    "npz": (),
    "image-folder": ("test_path",),
}
"""Settings that mean nothing to a source; setting one is an error, so that none is silently ignored."""


def load_task(settings: TaskSettings) -> Task:
    """Loads, checks and splits the data that `settings` name.

    Raises:
        TaskError: an unknown source (the known ones are listed), a setting that the source does not
            have, or data that cannot be used.
    """
    if settings.name not in SOURCES:
        raise TaskError(f"task: unknown data set {settings.name!r}; allowed: {', '.join(sorted(SOURCES))}")
    for key in _UNUSED[settings.name]:
        if getattr(settings, key) is not None:
            raise TaskError(
                f"task {settings.name!r}: {key} is {getattr(settings, key)!r}, which it does not use; leave it out"
            )
    return SOURCES[settings.name](settings)
