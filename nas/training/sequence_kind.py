"""Sequences with a checkable answer: learnt from examples, or from rewards for sampled answers.

Legend: n examples, t positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nas.training.answers import answer_loss, is_answered, likeliest, logits_of_a_text, share_answered, vocabulary_of
from nas.training.data.question_text import IGNORED
from nas.training.data.sequence_toy import END, NUM_DIGITS
from nas.training.recipe import Recipe
from nas.training.rollout import REWARD_PARSED, REWARD_RIGHT
from nas.training.task import Split, Task
from nas.training.task_kind import Inputs, TaskKind


def _tokens(_task: Task, tokens_nt: NDArray[Any]) -> Tensor:
    return torch.from_numpy(tokens_nt.astype(np.int64))


def _as_it_is(inputs: Inputs, _recipe: Recipe, _generator: torch.Generator) -> Inputs:
    return inputs


def check_answers(answers_nt: Tensor, labels_nt: Tensor) -> tuple[Tensor, Tensor]:
    """Rewards of sampled answers, and which of them parse: a digit, then the end.

    Args:
        answers_nt: tokens that a policy sampled, two each.
        labels_nt: of the prompts, with the right answer where they ask for one.

    >>> rewards, parsed = check_answers(torch.tensor([[7, 11], [3, 11], [11, 7]]), torch.tensor([[-100, 7, 11]] * 3))
    >>> [round(reward, 1) for reward in rewards.tolist()], parsed.tolist()
    ([1.0, 0.2, 0.0], [True, True, False])
    """
    wanted_nt = labels_nt[labels_nt != IGNORED].view(len(labels_nt), -1)
    is_parsed_n = (answers_nt[:, 0] < NUM_DIGITS) & (answers_nt[:, 1] == END)
    is_right_n = (answers_nt == wanted_nt).all(dim=1)
    return torch.where(is_right_n, REWARD_RIGHT, REWARD_PARSED * is_parsed_n), is_parsed_n


def _by_answer(task: Task, split: Split, grades: NDArray[np.float64]) -> tuple[tuple[str, float], ...]:
    answers = np.array([row[row != IGNORED][0] for row in split.labels])
    return tuple(
        (f"answer {digit}", float(grades[answers == digit].mean()))
        for digit in range(NUM_DIGITS)
        if (answers == digit).any()
    )


CHECKED_SEQUENCES = TaskKind(
    prepare=_tokens,
    augment=_as_it_is,
    loss=answer_loss,
    grade=is_answered,
    answer=likeliest,
    num_labels=vocabulary_of,
    num_outputs=logits_of_a_text,
    summarise=share_answered,
    slices=_by_answer,
    reward=check_answers,
)
