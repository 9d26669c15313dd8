"""How text becomes tokens: bytes as they are, or byte pairs (Sennrich et al. 2016) learnt from the train split.

The package `tokenizers` is an extra: bytes need nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nas.training.task import TaskError

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUM_BYTES = 256
"""The vocabulary of plain bytes, and the least of every other."""

LEARN_BYTES = 2**25
"""Text that byte pairs are learnt from at most, 32 MiB: their counts hardly move after that."""


class Encoding(Protocol):
    """A vocabulary, and how text is written in it."""

    vocabulary: int
    json: str | None
    """What `Task.tokenizer` holds."""

    def encode(self, texts: Sequence[bytes]) -> list[NDArray[Any]]:
        """The tokens of each text, in the smallest unsigned type."""
        ...

    def bytes_of(self, tokens: NDArray[Any]) -> NDArray[np.int64]:
        """How many bytes of text each token stands for."""
        ...


class Bytes:
    """A token is a byte."""

    vocabulary: int = NUM_BYTES
    json: str | None = None

    def encode(self, texts: Sequence[bytes]) -> list[NDArray[Any]]:
        """The bytes themselves."""
        return [np.frombuffer(text, dtype=np.uint8) for text in texts]

    def bytes_of(self, tokens: NDArray[Any]) -> NDArray[np.int64]:
        """One each."""
        return np.ones(tokens.shape, dtype=np.int64)


class BytePairs:
    """Byte pairs of a tokenizer of the package `tokenizers`.

    Bytes that are not UTF-8 become U+FFFD first, as its texts are text: what is predicted, and whose bytes are
    counted, is the text after that.
    """

    def __init__(self, json: str) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_str(json)
        self.json: str | None = json
        self.vocabulary = int(self._tokenizer.get_vocab_size())
        # In a byte-level vocabulary a token is written with one character for each of its bytes.
        self._lengths = np.zeros(self.vocabulary, dtype=np.int64)
        for token, number in self._tokenizer.get_vocab().items():
            self._lengths[number] = len(token)
        self._dtype = np.min_scalar_type(self.vocabulary - 1)

    def encode(self, texts: Sequence[bytes]) -> list[NDArray[Any]]:
        """Each text by itself: no token spans two."""
        encoded = self._tokenizer.encode_batch_fast([_readable(text) for text in texts], add_special_tokens=False)
        return [np.array(each.ids, dtype=self._dtype) for each in encoded]

    def bytes_of(self, tokens: NDArray[Any]) -> NDArray[np.int64]:
        """As many as its name has characters."""
        return np.asarray(self._lengths[tokens])


def learn_byte_pairs(texts: Iterable[bytes], vocabulary: int) -> BytePairs:
    """Byte pairs of exactly `vocabulary` tokens, the same for the same texts in the same order.

    Args:
        texts: of the train split alone.
        vocabulary: 256 bytes, and pairs.

    Raises:
        TaskError: the package is missing, or the texts have not enough pairs that occur twice.
    """
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError as error:
        raise TaskError(
            f"task: vocabulary is {vocabulary}, and byte pairs need the package tokenizers;"
            " pip install 'edgenas[language]', or leave task.vocabulary at 256 (bytes)"
        ) from error
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_first(texts, LEARN_BYTES), trainer=trainer)
    learnt = tokenizer.get_vocab_size()
    if learnt != vocabulary:
        raise TaskError(
            f"task: vocabulary is {vocabulary}, but the train text gives only {learnt} tokens;"
            f" allowed: {NUM_BYTES} (bytes) to {learnt}, or give more text"
        )
    return BytePairs(tokenizer.to_str())


def _readable(text: bytes) -> str:
    return text.decode("utf-8", errors="replace")


def _first(texts: Iterable[bytes], num_bytes: int) -> Iterable[str]:
    for text in texts:
        if num_bytes <= 0:
            return
        yield _readable(text[:num_bytes])
        num_bytes -= len(text)
