"""Candidates are pure data: they survive JSON, keep their id, and refuse what cannot be."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.candidate import CANDIDATE_ID_LENGTH, BlockSpec, Candidate, CandidateError, TensorSpec

values = st.one_of(
    st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), st.text(), st.booleans()
)
blocks = st.builds(
    lambda kind, options: BlockSpec(kind=kind, options=tuple(sorted(options.items()))),
    st.text(min_size=1),
    st.dictionaries(st.text(), values, max_size=4),
)
candidates = st.builds(
    Candidate,
    space=st.text(),
    space_version=st.integers(1, 100),
    input=blocks,
    blocks=st.lists(blocks, max_size=5).map(tuple),
    head=blocks,
)

CANDIDATE = Candidate(
    space="conv_attention",
    space_version=1,
    input=BlockSpec.of("image", channels=1, height=8, width=8),
    blocks=(BlockSpec.of("stem", width=32, stride=1),),
    head=BlockSpec.of("classifier", classes=10),
)


@given(candidates)
@settings(deadline=None)
def test_any_candidate_survives_json_with_its_id(candidate: Candidate) -> None:
    again = Candidate.from_json(json.loads(candidate.canonical_json()))
    assert again == candidate
    assert again.candidate_id == candidate.candidate_id
    assert again.canonical_json() == candidate.canonical_json()


@given(st.dictionaries(st.text(), values, min_size=2, max_size=4), st.randoms())
@settings(deadline=None)
def test_the_order_of_json_keys_never_changes_the_id(options: dict[str, Any], order: Any) -> None:
    names = list(options)
    order.shuffle(names)
    data = CANDIDATE.to_json()
    first = {**data, "head": {"kind": "k", "options": options}}
    second = {"head": {"options": {name: options[name] for name in names}, "kind": "k"}, **data}
    second["head"] = {"options": {name: options[name] for name in names}, "kind": "k"}
    assert Candidate.from_json(first).candidate_id == Candidate.from_json(second).candidate_id


@given(candidates, candidates)
@settings(deadline=None)
def test_candidates_with_one_id_have_one_canonical_text(one: Candidate, other: Candidate) -> None:
    assert (one.candidate_id == other.candidate_id) == (one.canonical_json() == other.canonical_json())


def test_the_id_of_a_known_candidate_never_changes() -> None:
    # Stored studies, caches and artifacts are keyed by it: a change here orphans all of them.
    assert CANDIDATE.candidate_id == "7abac54c19b5"
    assert len(CANDIDATE.candidate_id) == CANDIDATE_ID_LENGTH


def changed(**fields: Any) -> dict[str, Any]:
    return {**CANDIDATE.to_json(), **fields}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "candidate: a NoneType where a JSON object is needed"),
        ([], "candidate: a list where a JSON object is needed"),
        ({}, "missing keys ['blocks', 'head', 'input', 'space', 'space_version']"),
        (changed(colour="red"), "unknown keys ['colour']"),
        (changed(space=3), "space must be text"),
        (changed(space_version="1"), "space_version a whole number"),
        (changed(space_version=True), "space_version a whole number"),
        (changed(blocks={}), "blocks must be a list, seen dict"),
        (changed(blocks=["conv"]), "block: a str where a JSON object is needed"),
        (changed(head={"kind": "classifier"}), "block: unknown keys [], missing keys ['options']"),
        (changed(head={"kind": 1, "options": {}}), "block: kind must be text"),
        (changed(head={"kind": "k", "options": []}), "block: kind must be text and options an object"),
        (changed(head={"kind": "k", "options": {"a": None}}), "option 'a' is a NoneType"),
        (changed(head={"kind": "k", "options": {"a": [1]}}), "option 'a' is a list; allowed: int, float, str, bool"),
        (changed(head={"kind": "k", "options": {"a": float("nan")}}), "option 'a' is nan"),
    ],
)
def test_bad_json_is_refused_in_one_line_that_names_the_fault(data: Any, message: str) -> None:
    with pytest.raises(CandidateError, match=re.escape(message)) as refusal:
        Candidate.from_json(data)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["kind", "cls", "self"])
def test_an_option_can_have_any_name(name: str) -> None:
    block = BlockSpec(kind="k", options=((name, 1),))
    assert BlockSpec.from_json(block.to_json()) == block


@pytest.mark.parametrize("options", [(("b", 1), ("a", 2)), (("a", 1), ("a", 2))])
def test_options_must_be_sorted_and_unique(options: tuple[tuple[str, int], ...]) -> None:
    with pytest.raises(CandidateError, match=r"must be sorted and unique; use BlockSpec\.of"):
        BlockSpec(kind="k", options=options)


def test_a_missing_option_is_named_with_those_that_exist() -> None:
    with pytest.raises(CandidateError, match=r"has no option 'depth'; it has \['stride', 'width'\]"):
        CANDIDATE.blocks[0]["depth"]


@pytest.mark.parametrize("value", [1.5, True, "3"])
def test_integer_refuses_everything_but_whole_numbers(value: float | bool | str) -> None:
    with pytest.raises(CandidateError, match="allowed: a whole number"):
        BlockSpec.of("k", width=value).integer("width")


def test_a_tensor_without_elements_is_refused() -> None:
    with pytest.raises(CandidateError, match=r"tensor 'image': shape \(1, 0\) has a size below 1"):
        TensorSpec(name="image", shape=(1, 0))
