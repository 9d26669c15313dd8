from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nas.gates.smoke import rehearsal_fault
from nas.training.baselines import baseline_of, constant_score
from nas.training.controls import score_shuffled
from nas.training.data.question_text import END, IGNORED, SEPARATOR, answers_of, questions_of
from nas.training.evaluate import load_model
from nas.training.kinds import kind_of
from nas.training.rehearsal import rehearse
from nas.training.result import Shuffled, TrainResult
from nas.training.task import Task
from nas.training.trainer import train
from search_spaces.blocks.language_model import Decoder
from search_spaces.blocks.vision_language_model import VisionLanguageModel
from search_spaces.language_entry import prefilled_state
from search_spaces.vision_language_layers import num_positions
from tests.nas_tests.training.small_visual_questions import QUICK, candidate_of, small_task

TASK = small_task(200)
KIND = kind_of(TASK)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    out = tmp_path_factory.mktemp("trained")
    result = train(candidate_of(TASK), TASK, QUICK, seed=0, out_dir=out)
    assert isinstance(result, TrainResult), result
    return result


def logits_for(labels_nt: np.ndarray) -> torch.Tensor:
    """Logits whose likeliest token is the label, or token 7 where none is asked."""
    tokens = torch.from_numpy(np.where(labels_nt == IGNORED, 7, labels_nt).astype(np.int64))
    return torch.nn.functional.one_hot(tokens, 256).float()


def test_a_question_is_right_when_every_token_of_its_answer_and_the_end_are() -> None:
    labels = torch.from_numpy(TASK.val.labels[:6].astype(np.int64))
    outputs = logits_for(TASK.val.labels[:6])
    assert KIND.grade(outputs, labels).tolist() == [1.0] * 6
    for row in range(6):
        asked = np.flatnonzero(TASK.val.labels[row] != IGNORED)
        for position in range(outputs.shape[1]):
            spoilt = outputs.clone()
            spoilt[row, position] = spoilt[row, position].roll(1)
            is_right = KIND.grade(spoilt, labels).tolist()
            assert is_right[row] == float(position not in asked), (row, position)


def test_the_loss_asks_for_answers_alone() -> None:
    labels = torch.from_numpy(TASK.val.labels[:4].astype(np.int64))
    outputs = torch.randn(4, labels.shape[1], 256, generator=torch.Generator().manual_seed(0))
    loss = KIND.loss(outputs, labels, QUICK)
    asked = [(row, position) for row in range(4) for position in np.flatnonzero(labels[row] != IGNORED)]
    each = [-float(outputs[row, at].log_softmax(0)[labels[row, at]]) for row, at in asked]
    assert float(loss) == pytest.approx(np.mean(each), rel=1e-5)


def test_images_are_looked_up_and_standardised() -> None:
    images, tokens = KIND.prepare(TASK, TASK.val.inputs[:5])
    assert TASK.images is not None
    for index in range(5):
        raw = TASK.images[TASK.val.inputs[index, 0]].astype(np.float64)
        wanted = (raw - np.reshape(TASK.mean, (3, 1, 1))) / np.reshape(TASK.std, (3, 1, 1))
        np.testing.assert_allclose(images[index].numpy(), wanted, rtol=1e-5, atol=1e-5)
    assert tokens.dtype == torch.int64 and questions_of(tokens.numpy()) == questions_of(TASK.val.inputs[:5, 1:])


def test_shuffling_deals_out_images_and_leaves_questions_with_their_answers() -> None:
    mixed = KIND.shuffle(TASK.val.inputs, np.random.default_rng(0))
    assert np.array_equal(mixed[:, 1:], TASK.val.inputs[:, 1:])
    assert not np.array_equal(mixed[:, 0], TASK.val.inputs[:, 0])
    assert sorted(mixed[:, 0]) == sorted(TASK.val.inputs[:, 0])


def question_only_by_hand(task: Task) -> float:
    pairs = list(zip(questions_of(task.train.inputs[:, 1:]), answers_of(task.train.labels), strict=True))
    right = 0
    for question, answer in zip(questions_of(task.val.inputs[:, 1:]), answers_of(task.val.labels), strict=True):
        seen = Counter(said for asked, said in pairs if asked == question) or Counter(said for _, said in pairs)
        right += max(sorted(seen), key=lambda said: seen[said]) == answer
    return right / len(task.val)


def test_the_question_only_baseline_is_the_commonest_train_answer_of_each_question() -> None:
    baseline = baseline_of(TASK)
    assert (baseline.name, baseline.split) == ("question only", "val")
    assert baseline.value == pytest.approx(question_only_by_hand(TASK))
    assert constant_score(TASK) < baseline.value < 0.8
    assert baseline_of(TASK, "test").value != baseline.value


def test_questions_that_train_lacks_get_its_commonest_answer() -> None:
    inputs = TASK.val.inputs.copy()
    inputs[:, 1] = ord("W")
    odd = replace(TASK, val=replace(TASK.val, inputs=inputs))
    assert baseline_of(odd).value == pytest.approx(question_only_by_hand(odd))


def test_training_beats_the_question_alone_and_falls_back_to_it_on_other_images(trained: TrainResult) -> None:
    baseline = baseline_of(TASK).value
    assert trained.score.metric == "answer_accuracy"
    assert trained.score.lower > baseline + 0.1
    assert {name for name, _ in trained.score.slices} == {"blue/red", "left/right", "no/yes"}
    assert trained.weights_path and trained.weights_sha256
    seen = score_shuffled(
        candidate_of(TASK), TASK, QUICK, seed=0, weights_path=Path(trained.weights_path),
        weights_sha256=trained.weights_sha256,
    )  # fmt: skip
    assert isinstance(seen, Shuffled)
    assert seen.inputs.lower < baseline and seen.labels.lower < baseline
    assert seen.inputs.num_examples == len(TASK.val)


def test_a_network_that_cannot_carry_the_image_to_the_answer_stays_at_the_baseline() -> None:
    """Two convolutions of three tokens reach back four: the image is further away than that."""
    task = small_task(60)
    result = train(candidate_of(task, "conv_k3"), task, QUICK.model_copy(update={"epochs": 2}), seed=0)
    assert isinstance(result, TrainResult)
    assert result.score.lower < baseline_of(task).value


def test_a_question_is_graded_as_greedy_decoding_answers_it(trained: TrainResult) -> None:
    """As it is deployed: encode, prefill up to the separator, then token by token."""
    candidate = candidate_of(TASK)
    assert trained.weights_path
    model = load_model(candidate, Path(trained.weights_path))
    assert isinstance(model, VisionLanguageModel)
    part = TASK.val.take(slice(40))
    # Other images spoil some answers: what is said after a wrong token must not matter.
    part = replace(part, inputs=KIND.shuffle(part.inputs, np.random.default_rng(0)))
    images, tokens = KIND.prepare(TASK, part.inputs)
    with torch.no_grad():
        grades = KIND.grade(model(images, tokens), torch.from_numpy(part.labels.astype(np.int64)))
    said, slots = [], num_positions(candidate)
    for image, question in zip(images, questions_of(part.inputs[:, 1:]), strict=True):
        asked = torch.tensor([[*question, SEPARATOR]])
        with torch.no_grad():
            x_bsc = torch.cat([model.encode_image(image[None]), model.embed(asked)], dim=1)
            logits, *_ = model.prefill(x_bsc, slots)
        decoder = Decoder(model.decode, prefilled_state(model, candidate, x_bsc, slots), x_bsc.shape[1])
        answer = [int(logits[0].argmax())]
        while answer[-1] != END and len(answer) < 10:
            answer.append(int(decoder.feed(answer[-1]).argmax()))
        said.append(bytes(answer))
    assert [float(a == b) for a, b in zip(said, answers_of(part.labels), strict=True)] == grades.tolist()
    assert 0 < sum(grades.tolist()) < 40


def test_a_network_that_learns_passes_the_smoke_gate() -> None:
    seen = rehearse(candidate_of(TASK), TASK, QUICK, seed=0)
    assert rehearsal_fault(seen) is None, seen
    assert seen.scoring is not None and (seen.scoring.if_right, seen.scoring.if_wrong) == (1.0, 0.0)


def test_questions_about_one_image_widen_the_interval() -> None:
    right_by_image = (TASK.val.inputs[:, 0] % 2 == 0).astype(np.float64)
    right_by_question = np.random.default_rng(0).permutation(right_by_image)
    _, low, high = KIND.summarise(TASK.val, right_by_image)
    _, lower, upper = KIND.summarise(TASK.val, right_by_question)
    assert high - low > 1.5 * (upper - lower)
