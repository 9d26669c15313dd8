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
        "training.epoch_examples": 192,
        "training.batch_size": 2,
        "training.learning_rate": 3e-3,
        "training.weight_decay": 0.1,
        "training.label_smoothing": 0.0,
        "training.warmup_share": 0.1,
        "compile.tuning_trials": 4,
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
        "compile.tuning_trials": 4,
    },
}
"""Kind of task to dotted key to value; a key that is not here has the default of its section.

Four schedules a kernel: two phases have twice the kernels of one, and the first written schedule is nearly always
within a few percent of the best (`nas bench kernels`).

Two sequences a step: with as many tokens in all, 4 or 8 a step were worse for each of three references (val, bits per
byte, 8, 4, 2 sequences: short convolutions 2.58, 2.48, 2.42; attention 3.72, 3.37, 3.16; an LFM2-like mix 2.58, 2.50,
2.44), and so was a rate of 6e-3. `epochs` alone sets how long a training is: about 25 s on two cores for 1.5 million
parameters. Train holds ten times as much, so that the long trainings of a proxy audit see new text as well.

Of easy-vqa about 3,800 train questions ask for a colour and as many for a shape: 11,400 are as many of each kind as of
those that are answered yes or no. With the kinds as they come (four of six yes or no), networks of one attention layer
still answered colours by chance after 24,000 examples; drawn evenly, after 12,000 they were at 0.46.
"""


DEFAULTS_OF_TASK: dict[str, Mapping[str, Default]] = {
    "sequence-toy": {
        "task.context": 8,
        "training.epochs": 4,
        "task.max_train_examples": 512,
        "task.max_val_examples": 256,
        "training.batch_size": 16,
        "training.learning_rate": 3e-3,
        "training.label_smoothing": 0.0,
        "compile.tuning_trials": 4,
    },
}
"""Data source to dotted key to value, instead of the defaults of its space's kind of task."""


def defaults_of(space: str, task: str | None = None) -> Mapping[str, Default]:
    """What a configuration of `space` and `task` begins with; empty for an unknown space, which is refused elsewhere.

    >>> defaults_of("conv_attention")
    {}
    """
    if task in DEFAULTS_OF_TASK:
        return DEFAULTS_OF_TASK[task]
    kind = task_kind_of(space)
    return {} if kind is None else DEFAULTS_OF_KIND.get(kind, {})
