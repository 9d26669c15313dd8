"""What is learnt: data with its splits, and how a prediction is scored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from search_spaces.candidate import BlockSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

SplitName = Literal["train", "val", "test"]


class TaskError(ValueError):
    """Data that cannot be used: names the file, what was seen and what is allowed."""


class TaskSettings(BaseModel):
    """Which data to learn and how to split it. The TOML section `[task]` has these keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(default="digits", description="Data source: digits, fashion-mnist, npz or image-folder.")
    path: str | None = Field(
        default=None,
        description="File (npz) or folder (image-folder, fashion-mnist) that holds the data; digits needs none.",
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
        default=None, ge=2, description="Train on at most this many examples, drawn evenly over the classes."
    )
    resize: tuple[int, int] | None = Field(
        default=None, description="Height and width in pixels to bring encoded images (PNG, JPEG) to."
    )
    layout: Literal["auto", "nchw", "nhwc"] = Field(
        default="auto", description="Order of the axes of npz images: channels first, last, or told by their sizes."
    )
    seed: int = Field(default=0, ge=0, description="Seed of the split; another one draws other examples.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Examples of one split, in raw units.

    Attributes:
        inputs: first axis is the example; for images uint8 or float32, NCHW, not yet standardised.
        labels: int64, first axis is the example; for classes shape (examples,).
    """

    inputs: NDArray[Any]
    labels: NDArray[Any]

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise TaskError(f"split: {len(self.inputs)} inputs but {len(self.labels)} labels; allowed: one label each")
        if len(self.inputs) == 0:
            raise TaskError("split: no examples; allowed: at least one")

    def __len__(self) -> int:
        return len(self.labels)


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
        class_names: name of each label, in the order of the labels.
        mean, std: per channel, of the train split only, in raw units; a network sees
            `(raw - mean) / std`. Whoever deploys a winner needs these two.
        train, val: what the search may look at.
        test: opened once, at the end, by `evaluate.score_test` alone.
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

    def split(self, name: SplitName) -> Split:
        """The split called `name`."""
        splits: dict[str, Split] = {"train": self.train, "val": self.val, "test": self.test}
        return splits[name]

    @property
    def fingerprint(self) -> str:
        """SHA-256 over every array, the class names and the constants: what a network was trained on.

        Takes about 0.1 s for 50 MB; keep the answer where it is asked for often.
        """
        digest = hashlib.sha256()
        for part in (self.kind, self.input, self.head, self.class_names, self.mean, self.std):
            digest.update(repr(part).encode())
        for split in (self.train, self.val, self.test):
            for array in (split.inputs, split.labels):
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
