from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nas.training.data.question_text import (
    END,
    IGNORED,
    PADDING,
    SEPARATOR,
    answers_of,
    encode_pairs,
    num_tokens_of,
    questions_of,
)

TEXT = st.text(st.characters(blacklist_categories=("Cc", "Cs")), min_size=1, max_size=12)


@given(TEXT, TEXT, st.integers(0, 5))
def test_questions_and_answers_can_be_read_back_from_tokens_and_labels(question: str, answer: str, room: int) -> None:
    tokens, labels = encode_pairs([question], [answer], num_tokens_of(question, answer) + room)
    assert questions_of(tokens) == [question.encode()]
    assert answers_of(labels) == [answer.encode() + bytes([END])]


@given(TEXT, TEXT)
def test_each_label_is_the_token_after_its_position_and_the_first_one_is_at_the_separator(
    question: str, answer: str
) -> None:
    size = num_tokens_of(question, answer)
    tokens, labels = encode_pairs([question], [answer], size + 2)
    asked = np.flatnonzero(labels[0] != IGNORED)
    assert tokens[0, asked[0]] == SEPARATOR and asked.tolist() == list(range(len(question.encode()), size))
    following = np.append(tokens[0, 1:size], END)
    assert labels[0, asked].tolist() == following[asked].tolist()
    assert tokens[0, size:].tolist() == [PADDING] * 2
