"""The registry of task kinds: name to the functions that training and scoring need."""

from __future__ import annotations

from nas.training.image_kind import IMAGE_CLASSIFICATION
from nas.training.language_kind import LANGUAGE_MODELLING
from nas.training.sequence_kind import CHECKED_SEQUENCES
from nas.training.task import Task, TaskError
from nas.training.task_kind import TaskKind
from nas.training.vqa_kind import VISUAL_QUESTION_ANSWERING

KINDS: dict[str, TaskKind] = {
    "checked_sequences": CHECKED_SEQUENCES,
    "image_classification": IMAGE_CLASSIFICATION,
    "language_modelling": LANGUAGE_MODELLING,
    "visual_question_answering": VISUAL_QUESTION_ANSWERING,
}


def kind_of(task: Task) -> TaskKind:
    """The functions for `task`; an unknown kind is refused, and the known ones are listed."""
    if task.kind not in KINDS:
        raise TaskError(f"task {task.name!r}: unknown kind {task.kind!r}; allowed: {', '.join(sorted(KINDS))}")
    return KINDS[task.kind]


def require_checkable(task: Task) -> None:
    """Refuses reinforcement on a task whose answers cannot be checked.

    Raises:
        TaskError: names what could be set instead.
    """
    if kind_of(task).reward is None:
        raise TaskError(
            f'task {task.name!r} with training.recipe = "grpo": its answers cannot be checked, so there is no reward;'
            ' allowed: task.name = "sequence-toy" (--data sequence-toy), or leave training.recipe out'
        )
