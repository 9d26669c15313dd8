"""Text of the user: one file or folder, or several domains, each a file or folder."""

from __future__ import annotations

from nas.training.data.language_task import Domain, language_task
from nas.training.data.text_files import read_texts
from nas.training.task import Task, TaskError, TaskSettings, user_path

FORM = 'task.path (--data-path) to a text file or folder, or [task.domains] with english = "books/", code = "src/"'


def load_text(settings: TaskSettings) -> Task:
    """Reads `path` as one domain called `text`, or each of `domains`."""
    if settings.path is None and settings.domains is None:
        raise TaskError(f"task 'text': path is missing; set {FORM}")
    if settings.path is not None and settings.domains is not None:
        raise TaskError(f"task 'text': path is {settings.path!r} and there are domains as well; set either {FORM}")
    named = settings.domains or (("text", settings.path or ""),)
    return language_task(
        settings,
        [Domain(name=name, origin=path, files=read_texts(user_path(path))) for name, path in named],
    )
