"""A toy task whose answers can be checked: digits, an equals sign, then the last of the digits and an end.

Few updates teach it, so that a whole search by reinforcement takes minutes on a CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nas.training.data.question_text import IGNORED
from nas.training.task import Split, SplitName, Task, TaskError, TaskSettings
from search_spaces.candidate import BlockSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUM_DIGITS = 10
"""Tokens 0 to 9 are the digits."""
EQUALS, END = 10, 11
VOCABULARY = 12
DEFAULT_CONTEXT = 8
NUM_PROMPTS = 3000
"""Distinct prompts, over all splits."""


def load_sequence_toy(settings: TaskSettings) -> Task:
    """Distinct random prompts, split by the settings' shares: no prompt is in two splits.

    Raises:
        TaskError: shares that leave a split empty.
    """
    context = settings.context or DEFAULT_CONTEXT
    digits = _distinct_prompts(context - 2, np.random.default_rng(settings.seed))
    num_test = round(settings.test_share * len(digits))
    num_val = round(settings.val_share * (len(digits) - num_test))
    if not 0 < num_test < num_test + num_val < len(digits):
        raise TaskError(
            f"task 'sequence-toy': test_share {settings.test_share:g} and val_share {settings.val_share:g} of"
            f" {len(digits)} prompts leave a split empty; allowed: shares that leave one prompt for each"
        )
    parts: dict[SplitName, NDArray[Any]] = {
        "test": digits[:num_test][: settings.max_test_examples],
        "val": digits[num_test : num_test + num_val][: settings.max_val_examples],
        "train": digits[num_test + num_val :][: settings.max_train_examples],
    }
    splits = {name: encode_prompts(part) for name, part in parts.items()}
    return Task(
        name=settings.name,
        kind="checked_sequences",
        input=BlockSpec.of("text", context=context, vocabulary=VOCABULARY),
        head=BlockSpec.of("language_model", vocabulary=VOCABULARY),
        metric="answer_accuracy",
        direction="maximize",
        class_names=(),
        mean=(),
        std=(),
        train=splits["train"],
        val=splits["val"],
        test=splits["test"],
    )


def encode_prompts(digits: NDArray[Any]) -> Split:
    """Prompts with their answers: what enters a network, and the labels of the answer and its end.

    >>> split = encode_prompts(np.array([[7, 1, 4]]))
    >>> split.inputs.tolist(), split.labels.tolist()
    ([[7, 1, 4, 10, 4]], [[-100, -100, -100, 4, 11]])
    """
    count, length = digits.shape
    answers = digits[:, -1:]
    equals = np.full((count, 1), EQUALS)
    labels = np.full((count, length + 2), IGNORED)
    labels[:, length], labels[:, length + 1] = answers[:, 0], END
    return Split(
        inputs=np.hstack([digits, equals, answers]).astype(np.uint8), labels=labels.astype(np.int16)
    )  # fmt: skip


def _distinct_prompts(length: int, generator: np.random.Generator) -> NDArray[Any]:
    drawn = np.unique(generator.integers(0, NUM_DIGITS, (2 * NUM_PROMPTS, length)), axis=0)
    return np.asarray(generator.permutation(drawn)[:NUM_PROMPTS])
