"""From a table of images and questions about them to a checked task: split by image, written as tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nas.training.data.assemble import channel_constants
from nas.training.data.language_task import even_quotas
from nas.training.data.question_text import NUM_TOKENS, encode_pairs, has_control_characters, num_tokens_of
from nas.training.data.splitting import identical_groups
from nas.training.task import Split, SplitName, Task, TaskError, TaskSettings
from search_spaces.candidate import BlockSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFAULT_CONTEXT = 48
"""Tokens of text where the settings have none: the longest question of easy-vqa takes 46 with its answer."""

MAX_KINDS = 8
"""Kinds of question that are scored one by one; the rest are `other`."""

MAX_NAMED_ANSWERS = 3
"""Answers that the name of a kind of question lists."""

SPLITS: tuple[SplitName, ...] = ("train", "val", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class VisualQuestion:
    """One question about one image.

    Attributes:
        where: file and row, for messages.
        image: row of the table of images.
        question, answer: one line of text each.
        split: where its source puts it; None leaves that to the settings.
    """

    where: str
    image: int
    question: str
    answer: str
    split: SplitName | None = None


def visual_question_task(settings: TaskSettings, images: NDArray[Any], asked: Sequence[VisualQuestion]) -> Task:
    """Checks the questions, splits them so that no image is in two splits, and writes them as tokens.

    Images with the same pixels count as one. Splits that the source does not have are drawn from train, by image.

    Args:
        settings: the data.
        images: uint8, (images, channels, height, width).
        asked: at least one.

    Raises:
        TaskError: text that cannot be learnt, an image in two splits, or too few images; names the row.
    """
    context = settings.context or DEFAULT_CONTEXT
    for each in asked:
        _check_text(each, context)
    _, first, table = np.unique(identical_groups(images), return_index=True, return_inverse=True)
    rows = table[[each.image for each in asked]]
    parts = _parts(settings, rows, asked)
    # Only images that somebody asks about are kept, each once.
    used, rows = np.unique(rows, return_inverse=True)
    kept = np.ascontiguousarray(images[first[used]])
    kinds = kinds_of_questions(asked)
    splits = {
        name: _split(asked, rows, kinds, chosen, context)
        for name, chosen in _chosen(settings, parts, kinds.numbers).items()
    }
    whole_train = None
    if len(splits["train"]) < (parts == 0).sum():
        whole_train = _split(asked, rows, kinds, np.flatnonzero(parts == 0), context)
    mean, std = channel_constants(kept[np.unique(splits["train"].inputs[:, 0])])
    _, channels, height, width = kept.shape
    return Task(
        name=settings.name,
        kind="visual_question_answering",
        input=BlockSpec.of(
            "image_text", channels=channels, height=height, width=width, context=context, vocabulary=NUM_TOKENS
        ),
        head=BlockSpec.of("vision_language_model", vocabulary=NUM_TOKENS),
        metric="answer_accuracy",
        direction="maximize",
        class_names=(),
        mean=mean,
        std=std,
        train=splits["train"],
        val=splits["val"],
        test=splits["test"],
        images=kept,
        whole_train=whole_train,
        domains=kinds.names,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionKinds:
    """Kinds of question by what can be answered.

    Attributes:
        names: of each kind.
        numbers: index into `names` of each question.
    """

    names: tuple[str, ...]
    numbers: NDArray[np.int64]


def kinds_of_questions(asked: Sequence[VisualQuestion]) -> QuestionKinds:
    """Groups questions whose answers are of one set: a question's text links the answers that it ever has.

    "Is it red?" is answered yes or no, "which colour?" red or blue: two sets, as no text has answers of both.

    >>> pairs = [("is it red?", "yes"), ("is it red?", "no"), ("which colour?", "red"), ("of what colour?", "red")]
    >>> asked = [VisualQuestion(where="", image=0, question=question, answer=answer) for question, answer in pairs]
    >>> kinds = kinds_of_questions(asked)
    >>> kinds.names, kinds.numbers.tolist()
    (('no/yes', 'red'), [0, 0, 1, 1])
    """
    linked: dict[str, str] = {}

    def root(name: str) -> str:
        while linked.setdefault(name, name) != name:
            name = linked[name]
        return name

    for each in asked:
        linked[root(f"question {each.question.casefold()}")] = root(f"answer {each.answer.casefold()}")
    roots = [root(f"answer {each.answer.casefold()}") for each in asked]
    sizes = Counter(roots)
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:MAX_KINDS]
    answers: dict[str, set[str]] = {}
    for name, each in zip(roots, asked, strict=True):
        answers.setdefault(name, set()).add(each.answer)
    names = [_name_of(sorted(answers[name])) for name in largest]
    numbers = [largest.index(name) if name in largest else MAX_KINDS for name in roots]
    other = ("other",) if MAX_KINDS in numbers else ()
    return QuestionKinds(names=(*names, *other), numbers=np.array(numbers, dtype=np.int64))


def _name_of(answers: list[str]) -> str:
    listed = "/".join(answers[:MAX_NAMED_ANSWERS])
    return listed if len(answers) <= MAX_NAMED_ANSWERS else f"{listed}/... ({len(answers)} answers)"


def _check_text(each: VisualQuestion, context: int) -> None:
    for what, text in (("question", each.question), ("answer", each.answer)):
        if not text.strip():
            raise TaskError(f"{each.where}: the {what} is empty; allowed: one line of text")
        if has_control_characters(text):
            raise TaskError(f"{each.where}: the {what} is {text!r}; allowed: one line without control characters")
    size = num_tokens_of(each.question, each.answer)
    if size > context:
        raise TaskError(
            f"{each.where}: question and answer take {size} tokens; allowed: task.context = {context}; set a longer "
            "one, or leave this question out"
        )


def _parts(settings: TaskSettings, rows: NDArray[Any], asked: Sequence[VisualQuestion]) -> NDArray[np.int64]:
    """Number of the split of each question, as in `SPLITS`."""
    parts = np.array([SPLITS.index(each.split or "train") for each in asked])
    owner: dict[int, int] = {}
    for index, (row, part) in enumerate(zip(rows.tolist(), parts.tolist(), strict=True)):
        before = owner.setdefault(row, index)
        if parts[before] != part:
            raise TaskError(
                f"{asked[index].where}: its image is in {SPLITS[part]}, and in {SPLITS[parts[before]]} at "
                f"{asked[before].where}; allowed: each image in one split"
            )
    generator = np.random.default_rng(settings.seed)
    for number, share in ((2, settings.test_share), (1, settings.val_share)):
        if not (parts == number).any():
            images = generator.permutation(np.unique(rows[parts == 0]))
            count = max(1, round(share * len(images)))
            if count >= len(images):
                raise TaskError(
                    f"{asked[0].where.split(':')[0]}: {len(images)} distinct image(s) left for train and "
                    f"{SPLITS[number]}; allowed: at least 2, so that no image is in two splits; add images"
                )
            parts[(parts == 0) & np.isin(rows, images[:count])] = number
    if not (parts == 0).any():
        raise TaskError(f"{asked[0].where.split(':')[0]}: no question in train; allowed: at least one")
    return parts


def _chosen(
    settings: TaskSettings, parts: NDArray[np.int64], kinds: NDArray[np.int64]
) -> dict[SplitName, NDArray[np.int64]]:
    """The questions of each split, in random order: files are sorted by image or by kind.

    A limit draws the same number of each kind for train: questions answered yes or no, most of easy-vqa, say little of
    an image, and drown what the others say. Val and test are thinned as they are, so that they score what comes.
    """
    limits = (settings.max_train_examples, settings.max_val_examples, settings.max_test_examples)
    chosen = {}
    for number, (name, limit) in enumerate(zip(SPLITS, limits, strict=True)):
        generator = np.random.default_rng([settings.seed, number])
        shuffled = generator.permutation(np.flatnonzero(parts == number))
        if name == "train":
            by_kind = [shuffled[kinds[shuffled] == kind] for kind in np.unique(kinds)]
            quotas = even_quotas([len(some) for some in by_kind], limit)
            drawn = np.concatenate([some[:quota] for some, quota in zip(by_kind, quotas, strict=True)])
            shuffled = shuffled[np.isin(shuffled, drawn)]
        chosen[name] = shuffled[:limit]
    return chosen


def _split(
    asked: Sequence[VisualQuestion],
    rows: NDArray[Any],
    kinds: QuestionKinds,
    chosen: NDArray[np.int64],
    context: int,
) -> Split:
    some = [asked[index] for index in chosen]
    tokens, labels = encode_pairs([each.question for each in some], [each.answer for each in some], context)
    return Split(
        inputs=np.concatenate([rows[chosen, None].astype(np.int32), tokens.astype(np.int32)], axis=1),
        labels=labels,
        groups=rows[chosen].astype(np.int64),
        domains=kinds.numbers[chosen],
    )
