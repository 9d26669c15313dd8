"""Defaults that depend on the search space: data, recipe and length of training, laid under what a user says."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.registry import task_kind_of

Default = str | int | float

DEFAULTS_OF_KIND: dict[str, Mapping[str, Default]] = {
    "language_modelling": {
        "task.name": "python-source",
        "task.context": 512,
        "task.vocabulary": 256,
        "task.max_train_examples": 4096,
        "task.max_val_examples": 128,
        "task.max_test_examples": 512,
        "training.epochs": 2,
        "training.epoch_examples": 256,
        "training.batch_size": 8,
        "training.learning_rate": 3e-3,
        "training.weight_decay": 0.1,
        "training.label_smoothing": 0.0,
        "training.warmup_share": 0.1,
    },
    "visual_question_answering": {
        "task.name": "easy-vqa",
        "task.context": 48,
        "task.max_train_examples": 11400,
        "task.max_val_examples": 1500,
        "training.epochs": 6,
        "training.epoch_examples": 4000,
        "training.batch_size": 16,
        "training.learning_rate": 2e-3,
        "training.weight_decay": 0.05,
        "training.label_smoothing": 0.0,
        "training.warmup_share": 0.1,
    },
}
"""Kind of task to dotted key to value; a key that is not here has the default of its section.

`epochs` alone sets how long a training of language takes. Train holds eight
times as much, so that the long trainings of a proxy audit see new text as well.

Of easy-vqa about 3,800 train questions ask for a colour and as many for a shape: 11,400 are as many of each kind as of
those that are answered yes or no. With the kinds as they come (four of six yes or no), networks of one attention layer
still answered colours by chance after 24,000 examples; drawn evenly, after 12,000 they were at 0.46.
"""


def defaults_of(space: str) -> Mapping[str, Default]:
    """What a configuration of `space` begins with; empty for an unknown space, whose name is refused elsewhere.

    >>> defaults_of("conv_attention")
    {}
    """
    kind = task_kind_of(space)
    return {} if kind is None else DEFAULTS_OF_KIND.get(kind, {})
