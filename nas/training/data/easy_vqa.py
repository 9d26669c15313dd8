"""easy-VQA: 48,248 questions about 5,000 images of one coloured shape each, from the package of that name (MIT)."""

from __future__ import annotations

from pathlib import Path

from nas.training.data.encoded_images import OpenBytes, decode_images
from nas.training.data.visual_questions import SPLITS, VisualQuestion, visual_question_task
from nas.training.task import SplitName, Task, TaskError, TaskSettings


def load_easy_vqa(settings: TaskSettings) -> Task:
    """Reads the installed package; its test split is ours, and val is drawn from its train images.

    Raises:
        TaskError: the package is not installed.
    """
    try:
        import easy_vqa
    except ImportError as error:
        raise TaskError(
            "task 'easy-vqa': the package easy-vqa is not installed; pip install 'edgenas[vqa]', or take vqa-folder"
        ) from error
    parts = {
        "train": (easy_vqa.get_train_questions(), easy_vqa.get_train_image_paths()),
        "test": (easy_vqa.get_test_questions(), easy_vqa.get_test_image_paths()),
    }
    sources: list[tuple[str, OpenBytes]] = []
    asked: list[VisualQuestion] = []
    for name in SPLITS:
        if name not in parts:
            continue
        (questions, answers, image_ids), paths = parts[name]
        rows = {image: len(sources) + index for index, image in enumerate(paths)}
        sources += [_source(Path(path)) for path in paths.values()]
        asked += _questions(name, rows, questions, answers, image_ids)
    images = decode_images(sources, resize=settings.resize, num_channels=3)
    return visual_question_task(settings, images, asked)


def _source(path: Path) -> tuple[str, OpenBytes]:
    return str(path), lambda: path


def _questions(
    split: SplitName, rows: dict[int, int], questions: list[str], answers: list[str], image_ids: list[int]
) -> list[VisualQuestion]:
    triples = zip(questions, answers, image_ids, strict=True)
    return [
        VisualQuestion(
            where=f"easy-vqa {split}: question {number}",
            image=rows[image],
            question=question,
            answer=answer,
            # Val is drawn from train by the settings, test stays what it is.
            split=split,
        )
        for number, (question, answer, image) in enumerate(triples)
    ]
