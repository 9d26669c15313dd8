from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nas.training.data import byte_pairs
from nas.training.data.byte_pairs import BytePairs, Bytes, learn_byte_pairs
from nas.training.evaluate import score_val
from nas.training.task import TaskError
from tests.nas_tests.training.small_texts import SETTINGS, build_text_network, candidate_of, small_task, text_of

pytest.importorskip("tokenizers", reason="tokenizers is not installed (pip install 'edgenas[language]')")

ROOT = Path(__file__).parents[4]
TEXTS = [text_of("english", 4000, seed=seed) for seed in range(3)]
AWKWARD = ["Grüße an 東京 🙂\n".encode(), b"  def f():\r\n\treturn 'x'", b"\x7f\x01 control", "a\u0301".encode()]


def test_bytes_are_their_own_tokens() -> None:
    (tokens,) = Bytes().encode([b"ab\xff"])
    assert tokens.tolist() == [97, 98, 255]
    assert Bytes().bytes_of(tokens).tolist() == [1, 1, 1]


def test_tokens_stand_for_all_bytes_of_any_text() -> None:
    encoding = learn_byte_pairs(TEXTS, 280)
    for text, tokens in zip([*TEXTS, *AWKWARD], encoding.encode([*TEXTS, *AWKWARD]), strict=True):
        assert encoding.bytes_of(tokens).sum() == len(text)
    assert encoding.encode(TEXTS)[0].dtype == np.uint16
    assert len(encoding.encode(TEXTS)[0]) < len(TEXTS[0]) / 1.5


def test_what_ships_with_a_winner_encodes_alike_and_decodes_back() -> None:
    from tokenizers import Tokenizer

    encoding = learn_byte_pairs(TEXTS, 280)
    tokenizer = Tokenizer.from_str(encoding.json)
    for text in AWKWARD:
        ids = tokenizer.encode(text.decode()).ids
        assert ids == BytePairs(encoding.json).encode([text])[0].tolist()
        assert tokenizer.decode(ids) == text.decode()


def test_the_same_texts_give_the_same_vocabulary_in_every_process() -> None:
    code = (
        "from tests.nas_tests.training.data.test_byte_pairs import TEXTS, learn_byte_pairs\n"
        "print(learn_byte_pairs(TEXTS, 290).json, end='')"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PYTHONHASHSEED": seed,
                 "RAYON_NUM_THREADS": threads},
        ).stdout
        for seed, threads in (("1", "1"), ("2", "2"), ("3", "2"))
    }  # fmt: skip
    assert seen == {learn_byte_pairs(TEXTS, 290).json}


def test_a_vocabulary_that_the_text_does_not_fill_says_what_it_would() -> None:
    with pytest.raises(TaskError, match=r"vocabulary is 50000, but the train text gives only (\d+) tokens") as caught:
        learn_byte_pairs(TEXTS, 50_000)
    most = int(str(caught.value).split("gives only ")[1].split()[0])
    assert learn_byte_pairs(TEXTS, most).vocabulary == most


def test_the_vocabulary_is_learnt_from_train_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    learnt: list[bytes] = []

    def listening(texts: object, vocabulary: int) -> BytePairs:
        learnt.extend(texts)  # type: ignore[call-overload]
        return learn_byte_pairs(learnt, vocabulary)

    monkeypatch.setattr("nas.training.data.language_task.learn_byte_pairs", listening)
    task = small_task(SETTINGS.model_copy(update={"vocabulary": 280}))
    encoding = BytePairs(str(task.tokenizer))
    (train,) = encoding.encode([b"".join(learnt)])
    assert abs(len(train) - task.train.labels.size) < 20 * len(learnt)


def test_bits_per_byte_are_of_bytes_whatever_the_tokens() -> None:
    task = small_task(SETTINGS.model_copy(update={"vocabulary": 280}))
    candidate = candidate_of("uniform", vocabulary=280)
    assert task.val.num_bytes is not None
    assert (task.input["vocabulary"], task.head["vocabulary"]) == (280, 280)
    score = score_val(build_text_network(candidate), task, seed=0)
    assert score.value == pytest.approx(math.log2(280) * task.val.labels.size / task.val.num_bytes.sum())
    assert score.value < 8
    text = BytePairs(str(task.tokenizer))
    assert (task.val.num_bytes == [text.bytes_of(row).sum() for row in task.val.labels]).all()
    json.loads(str(task.tokenizer))


def test_text_beyond_what_counts_is_not_learnt_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_pairs, "LEARN_BYTES", 4000)
    assert learn_byte_pairs(TEXTS, 270).json == learn_byte_pairs(TEXTS[:1], 270).json
