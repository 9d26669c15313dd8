from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from nas.training.data.text_files import TextFile
from nas.training.data.text_splitting import Pieces, split_texts


def files_of(sizes: list[int]) -> list[TextFile]:
    return [
        TextFile(name=f"{number}.txt", content=f"{number:06}".encode() * (size // 6 + 1))
        for number, size in enumerate(sizes)
    ]


def split(files: list[TextFile], seed: int = 0) -> Pieces:
    return split_texts(files, val_share=0.25, test_share=0.2, seed=seed)


def num_bytes(pieces: Pieces) -> dict[str, int]:
    return {name: sum(len(piece.content) for piece in part) for name, part in pieces.items()}


@given(st.lists(st.integers(10, 20_000), min_size=1, max_size=40), st.integers(0, 5))
def test_every_byte_is_in_one_split_and_every_split_has_some(sizes: list[int], seed: int) -> None:
    files = files_of(sizes)
    pieces = split(files, seed)
    total = sum(len(file.content) for file in files)
    seen = num_bytes(pieces)
    assert sum(seen.values()) == total
    assert all(seen.values()), seen
    names = {name: {piece.name for piece in part} for name, part in pieces.items()}
    assert all(not names[left] & names[right] for left, right in combinations(names, 2))
    whole = sorted(piece.content for part in pieces.values() for piece in part if "[" not in piece.name)
    assert all(content in {file.content for file in files} for content in whole)


@given(st.permutations(range(12)), st.integers(0, 3))
def test_the_order_of_the_files_changes_nothing(order: list[int], seed: int) -> None:
    files = files_of([100 * (number + 1) for number in range(12)])
    assert split([files[number] for number in order], seed) == split(files, seed)


def test_shares_are_about_those_asked_for_and_another_seed_draws_others() -> None:
    files = files_of([1000] * 200)
    seen = num_bytes(split(files))
    total = sum(seen.values())
    assert abs(seen["test"] / total - 0.2) < 0.01
    assert abs(seen["val"] / total - 0.2) < 0.01
    assert split(files, 1) != split(files, 0)


def test_one_long_file_is_cut_at_ends_of_lines_into_parts_that_follow_each_other() -> None:
    content = b"".join(b"line %d\n" % number for number in range(2000))
    (train,), (val,), (test,) = split([TextFile(name="book", content=content)]).values()
    assert train.content + val.content + test.content == content
    assert all(part.content.endswith(b"\n") for part in (train, val, test))
    assert abs(len(test.content) / len(content) - 0.2) < 0.01
    assert abs(len(val.content) / len(content) - 0.2) < 0.01


def test_small_files_beside_a_long_one_stay_whole() -> None:
    pieces = split(files_of([10_000, 50, 60]))
    assert all(num_bytes(pieces)[name] > 1000 for name in pieces)
    assert sorted(piece.name for part in pieces.values() for piece in part if "[" not in piece.name) == [
        "1.txt", "2.txt"
    ]  # fmt: skip
