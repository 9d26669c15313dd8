"""Choices are recorded and replayed, and an impossible one is refused by name."""

from __future__ import annotations

import random

import pytest

from search_spaces.candidate import CandidateError
from search_spaces.space import RandomSuggest, ReplaySuggest


def test_random_answers_repeat_for_a_seed_and_differ_between_seeds() -> None:
    def answers(seed: int) -> list[int]:
        suggest = RandomSuggest(random.Random(seed))
        return [suggest.choose(f"choice{index}", range(100)) for index in range(10)]

    assert answers(1) == answers(1)
    assert answers(1) != answers(2)


def test_a_question_asked_twice_gets_one_answer() -> None:
    suggest = RandomSuggest(random.Random(0))
    first = [suggest.choose("width", range(1000)) for _ in range(5)]
    assert len(set(first)) == 1
    assert suggest.choices == {"width": first[0]}


def test_random_answers_reach_every_option_about_equally_often() -> None:
    suggest = RandomSuggest(random.Random(0))
    answers = [suggest.choose(str(index), ("a", "b", "c")) for index in range(3000)]
    assert all(900 < answers.count(option) < 1100 for option in "abc")


def test_a_missing_answer_is_refused_by_name() -> None:
    with pytest.raises(CandidateError, match=r"'depth' is missing; allowed: \[1, 2\]"):
        ReplaySuggest({"width": 32}).choose("depth", (1, 2))


def test_an_impossible_answer_is_refused_with_those_that_are_allowed() -> None:
    with pytest.raises(CandidateError, match=r"'depth' is 3; allowed: \[1, 2\]"):
        ReplaySuggest({"depth": 3}).choose("depth", (1, 2))


def test_a_replayed_answer_is_the_option_itself_even_where_a_table_changed_its_type() -> None:
    answer = ReplaySuggest({"width": 32.0}).choose("width", (32, 64))
    assert answer == 32 and isinstance(answer, int)
