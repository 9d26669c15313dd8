"""What is learnt: data with its splits, and how a prediction is scored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator

from search_spaces.candidate import BlockSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SplitName = Literal["train", "val", "test"]


class TaskError(ValueError):
    """Data that cannot be used: names the file, what was seen and what is allowed."""


class TaskSettings(BaseModel):
    """Which data to learn and how to split it. The TOML section `[task]` has these keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(
        default="digits",
        description=(
            "Data source: digits, fashion-mnist, npz or image-folder; for language python-source, text or sequence-toy"
            " (answers that can be checked); for questions about images easy-vqa (pip install 'edgenas[vqa]') or"
            " vqa-folder."
        ),
    )
    path: str | None = Field(
        default=None,
        description=(
            "File (npz, text) or folder (image-folder, fashion-mnist, text, vqa-folder) that holds the data; digits,"
            " python-source and easy-vqa need none."
        ),
    )
    domains: tuple[tuple[str, str], ...] | None = Field(
        default=None,
        description="Several kinds of text instead of `path`, each a file or folder, scored one by one as well.",
        examples=[{"english": "books/", "code": "src/"}],
    )
    test_path: str | None = Field(
        default=None, description="Second npz file, with the test examples; without one they are split off."
    )
    val_share: float = Field(
        default=0.25,
        gt=0,
        lt=0.9,
        description="Share of the train examples set aside for val, where the data has none (of what test left).",
    )
    test_share: float = Field(
        default=0.2, gt=0, lt=0.9, description="Share of all examples set aside for test, where the data has none."
    )
    max_train_examples: int | None = Field(
        default=None,
        ge=2,
        description="Train on at most this many examples (sequences of text), drawn evenly over classes or domains.",
    )
    max_val_examples: int | None = Field(
        default=None, ge=2, description="Score val on at most this many sequences of text, drawn evenly over domains."
    )
    max_test_examples: int | None = Field(
        default=None, ge=2, description="Score test on at most this many sequences of text, drawn evenly over domains."
    )
    context: int | None = Field(
        default=None,
        ge=8,
        description="Tokens of one sequence of text; not set: 512, or 48 for a question and its answer.",
        examples=[512],
    )
    vocabulary: int | None = Field(
        default=None,
        ge=256,
        description=(
            "Tokens that text is written in; 256, also when not set: bytes. More: byte pairs learnt from train"
            " (pip install 'edgenas[language]')."
        ),
        examples=[256],
    )
    resize: tuple[int, int] | None = Field(
        default=None, description="Height and width in pixels to bring encoded images (PNG, JPEG) to."
    )
    layout: Literal["auto", "nchw", "nhwc"] = Field(
        default="auto", description="Order of the axes of npz images: channels first, last, or told by their sizes."
    )
    seed: int = Field(default=0, ge=0, description="Seed of the split; another one draws other examples.")

    @field_validator("domains", mode="before")
    @classmethod
    def _checked_domains(cls, value: Any) -> Any:
        return None if value is None else checked_domains(value)

    @field_serializer("domains")
    def _table_of_domains(self, value: tuple[tuple[str, str], ...] | None) -> dict[str, str] | None:
        return None if value is None else dict(value)


def checked_domains(value: Any) -> tuple[tuple[str, str], ...]:
    """Names and paths of a TOML table (or of pairs), sorted by name: the order in a file means nothing.

    Raises:
        ValueError: no such table, a name or path that is empty, or two names that differ in case or spaces alone.

    >>> checked_domains({"english": "books/", "code": "src/"})
    (('code', 'src/'), ('english', 'books/'))
    """
    form = 'a table of names and paths, for instance domains = {english = "books/", code = "src/"}'
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, (list, tuple)) or not pairs:
        raise ValueError(f"seen {value!r}; allowed: {form}")
    names: dict[str, str] = {}
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise ValueError(f"seen {pair!r}; allowed: {form}")
        name, path = pair
        if not name.strip() or not path.strip():
            raise ValueError(f"{name!r} is {path!r}; allowed: a name and a file or folder, neither of them empty")
        other = names.setdefault(" ".join(name.split()).casefold(), name)
        if other is not name:
            raise ValueError(f"two domains are called {name!r} and {other!r}; allowed: each name once")
    return tuple(sorted((str(name), str(path)) for name, path in pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Examples of one split, in raw units.

    Attributes:
        inputs: first axis is the example; for images uint8 or float32, NCHW, not yet standardised; for text
            tokens in the smallest unsigned type, shape (examples, context); for questions about images a row of
            `Task.images`, then tokens, int32 of shape (examples, 1 + context).
        labels: whole numbers, first axis is the example; for classes shape (examples,), for text the next tokens,
            shape (examples, context), and -100 where none is asked.
        groups: examples with the same number are correlated, as they are of one file or image; None: each stands
            alone.
        domains: index into `Task.domains`; None where the task has none.
        num_bytes: bytes of text that the labels of each example stand for; None where there is no text to predict.
    """

    inputs: NDArray[Any]
    labels: NDArray[Any]
    groups: NDArray[np.int64] | None = None
    domains: NDArray[np.int64] | None = None
    num_bytes: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise TaskError(f"split: {len(self.inputs)} inputs but {len(self.labels)} labels; allowed: one label each")
        if len(self.inputs) == 0:
            raise TaskError("split: no examples; allowed: at least one")
        for name in _BESIDES:
            values = getattr(self, name)
            if values is not None and values.shape != (len(self.inputs),):
                raise TaskError(f"split: {name} of shape {values.shape} for {len(self.inputs)} inputs; one each")

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, which: slice | NDArray[Any]) -> Split:
        """Some of the examples, with all that is known of them."""
        besides = {name: values[which] for name in _BESIDES if (values := getattr(self, name)) is not None}
        return Split(inputs=self.inputs[which], labels=self.labels[which], **besides)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Every array that there is."""
        known = [getattr(self, name) for name in _BESIDES]
        return (self.inputs, self.labels, *(values for values in known if values is not None))


_BESIDES = ("groups", "domains", "num_bytes")
"""What is known of each example besides inputs and labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Data with its splits, the metric that scores it, and what the network sees and answers.

    Attributes:
        name: the data source, for instance `digits`.
        kind: what a space must be made for; also selects loss and scoring in `kinds.py`.
        input: what enters a network, for instance `BlockSpec.of("image", channels=1, height=8, width=8)`.
        head: what leaves it, for instance `BlockSpec.of("classifier", classes=10)`.
        metric: unit of the held-out score.
        direction: whether more of the metric is better.
        class_names: name of each label, in the order of the labels; empty where labels are tokens.
        mean, std: per channel, of the train split only, in raw units; a network sees
            `(raw - mean) / std`. Whoever deploys a winner needs these two. Empty for text.
        train, val: what the search may look at.
        test: opened once, at the end, by `evaluate.score_test` alone.
        domains: names of the parts that are scored one by one as well; empty where classes are.
        tokenizer: how text becomes tokens, JSON of the package `tokenizers`; None: a token is a byte, or there is
            no text.
        images: uint8, (images, channels, height, width), where several examples are about one image; None where
            each example has its own.
        whole_train: train before a limit thinned it, for baselines that cost nothing to learn; None: `train` is all.
    """

    name: str
    kind: str
    input: BlockSpec
    head: BlockSpec
    metric: str
    direction: Literal["maximize", "minimize"]
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    train: Split
    val: Split
    test: Split
    domains: tuple[str, ...] = ()
    tokenizer: str | None = None
    images: NDArray[Any] | None = None
    whole_train: Split | None = None

    def split(self, name: SplitName) -> Split:
        """The split called `name`."""
        splits: dict[str, Split] = {"train": self.train, "val": self.val, "test": self.test}
        return splits[name]

    def facts(self) -> dict[str, Any]:
        """What whoever deploys a network must know of its inputs and outputs, as plain JSON."""
        return {
            "input": self.input.to_json(),
            "head": self.head.to_json(),
            "mean": list(self.mean),
            "std": list(self.std),
            "class_names": list(self.class_names),
            "domains": list(self.domains),
        }

    @property
    def fingerprint(self) -> str:
        """SHA-256 over every array, the class names and the constants: what a network was trained on.

        Takes about 0.1 s for 50 MB; keep the answer where it is asked for often.
        """
        digest = hashlib.sha256()
        for part in (self.kind, self.input, self.head, self.class_names, self.mean, self.std):
            digest.update(repr(part).encode())
        for text in (self.domains, self.tokenizer):
            digest.update(repr(text).encode() if text else b"")
        shared = () if self.images is None else (self.images,)
        for array in (*shared, *self.train.arrays, *self.val.arrays, *self.test.arrays):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(array.tobytes() if not array.flags.c_contiguous else array.data)
        return digest.hexdigest()


def user_path(text: str) -> Path:
    """A path as a person types it, `~` included.

    Raises:
        TaskError: `~name` of a user there is not.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise TaskError(f"{text}: {error}; write the path in full") from error
