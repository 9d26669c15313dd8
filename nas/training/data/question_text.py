"""A question and its answer as one sequence of bytes, and the labels that make a network answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUM_TOKENS = 256
"""A token is a byte of UTF-8."""

SEPARATOR = 0x1F
"""Between question and answer: ASCII's unit separator, which no line of text has."""

END = 0x03
"""After the answer: ASCII's end of text."""

PADDING = 0x00
"""After the end; no label asks for it and no earlier token sees it."""

IGNORED = -100
"""Label of a position that is not asked: what torch's cross entropy leaves out."""

_FIRST_TEXT_BYTE = 0x20


def num_tokens_of(question: str, answer: str) -> int:
    """Tokens that enter a network: question, separator and answer; the end is only ever predicted.

    >>> num_tokens_of("what?", "red")
    9
    """
    return len(question.encode()) + 1 + len(answer.encode())


def encode_pairs(
    questions: Sequence[str], answers: Sequence[str], context: int
) -> tuple[NDArray[np.uint8], NDArray[np.int16]]:
    """Tokens and labels, (pairs, context) each.

    The label of a position is the token after it, for the separator and the answer; that of the last token of the
    answer is the end. Every other position is `IGNORED`.

    Args:
        questions, answers: text without control characters, of at most `context` tokens together with the separator.
        context: tokens of a row.

    >>> tokens, labels = encode_pairs(["a?"], ["no"], 6)
    >>> tokens[0].tolist(), labels[0].tolist()
    ([97, 63, 31, 110, 111, 0], [-100, -100, 110, 111, 3, -100])
    """
    tokens = np.full((len(questions), context), PADDING, dtype=np.uint8)
    labels = np.full((len(questions), context), IGNORED, dtype=np.int16)
    for row, (question, answer) in enumerate(zip(questions, answers, strict=True)):
        asked, said = question.encode(), answer.encode()
        size = len(asked) + 1 + len(said)
        tokens[row, :size] = list(asked + bytes([SEPARATOR]) + said)
        labels[row, len(asked) : size] = list(said + bytes([END]))
    return tokens, labels


def questions_of(tokens: NDArray[np.integer]) -> list[bytes]:
    """The question of each row: all bytes before the separator.

    >>> questions_of(encode_pairs(["a?"], ["no"], 6)[0])
    [b'a?']
    """
    return [row.tobytes().split(bytes([SEPARATOR]), 1)[0] for row in tokens.astype(np.uint8)]


def answers_of(labels: NDArray[np.integer]) -> list[bytes]:
    """The answer of each row, its end included.

    >>> answers_of(encode_pairs(["a?"], ["no"], 6)[1])
    [b'no\\x03']
    """
    return [row[row != IGNORED].astype(np.uint8).tobytes() for row in labels]


def has_control_characters(text: str) -> bool:
    """Whether `text` has a byte below the space or DEL: separator and end must not occur in it.

    >>> has_control_characters("red?"), has_control_characters("red\\n")
    (False, True)
    """
    return any(byte < _FIRST_TEXT_BYTE or byte == 0x7F for byte in text.encode())
