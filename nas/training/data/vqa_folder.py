"""A folder of PNG or JPEG images with `questions.json` or `questions.csv`: image, question, answer."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nas.training.data.encoded_images import OpenBytes, channels_of, decode_images, modes_of
from nas.training.data.image_folder import SUFFIXES
from nas.training.data.visual_questions import SPLITS, VisualQuestion, visual_question_task
from nas.training.task import Task, TaskError, TaskSettings, user_path

FILES = ("questions.json", "questions.csv")
REQUIRED, OPTIONAL = ("image", "question", "answer"), ("split",)
FORM = "image, question and answer, each a text, and split (train, val or test) or not"


def load_vqa_folder(settings: TaskSettings) -> Task:
    """Reads `path/questions.json` (a list of objects) or `path/questions.csv` (with a header), and the images it names.

    Raises:
        TaskError: no questions, a row that is none, an image that is missing or cannot be read; one line.
    """
    if settings.path is None:
        raise TaskError(
            "task 'vqa-folder': path is missing; set task.path (--data-path) to a folder with images and questions.csv"
        )
    root = user_path(settings.path)
    if not root.is_dir():
        raise TaskError(f"{root}: not a folder; allowed: a folder with images and questions.csv or questions.json")
    file = _questions_file(root)
    rows: dict[Path, int] = {}
    asked = []
    for where, row in _rows(file):
        path = _image_path(root, where, row["image"])
        split = row.get("split") or None
        if split is not None and split not in SPLITS:
            raise TaskError(f"{where}: split is {split!r}; allowed: {', '.join(SPLITS)}")
        asked.append(
            VisualQuestion(
                where=where,
                image=rows.setdefault(path, len(rows)),
                question=row["question"].strip(),
                answer=row["answer"].strip(),
                split=next((name for name in SPLITS if name == split), None),
            )
        )
    if not asked:
        raise TaskError(f"{file}: no questions; allowed: at least one for each of two images")
    sources = [_source(path) for path in rows]
    images = decode_images(sources, resize=settings.resize, num_channels=channels_of(modes_of(sources)))
    return visual_question_task(settings, images, asked)


def _source(path: Path) -> tuple[str, OpenBytes]:
    return str(path), lambda: path


def _questions_file(root: Path) -> Path:
    there = [root / name for name in FILES if (root / name).is_file()]
    if len(there) == 1:
        return there[0]
    if there:
        raise TaskError(f"{root}: has {' and '.join(FILES)}; allowed: one of them")
    num_images = sum(path.suffix.lower() in SUFFIXES for path in root.iterdir())
    raise TaskError(
        f"{root}: {num_images} image(s) and no questions; allowed: a folder with {' or '.join(FILES)}, each row {FORM}"
    )


def _rows(file: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Each row with where it is, checked to be texts under the known names."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise TaskError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    for number, row in _numbered(file, text):
        where = f"{file}: row {number}"
        if not isinstance(row, dict):
            raise TaskError(f"{where}: a {type(row).__name__}; allowed: {FORM}")
        missing = [name for name in REQUIRED if name not in row]
        unknown = sorted(str(name) for name in set(row) - {*REQUIRED, *OPTIONAL})
        if missing or unknown:
            raise TaskError(f"{where}: missing {missing}, unknown {unknown}; allowed: {FORM}")
        odd = [name for name, value in row.items() if not isinstance(value, str)]
        if odd:
            raise TaskError(f"{where}: {odd[0]} is {row[odd[0]]!r}; allowed: {FORM}")
        yield where, row


def _numbered(file: Path, text: str) -> Iterator[tuple[int, Any]]:
    """Rows of JSON from 1 on; of CSV the line in the file."""
    if file.suffix == ".json":
        try:
            data = json.loads(text)
        except ValueError as error:
            raise TaskError(f"{file}: not JSON ({error}); allowed: a list of objects with {FORM}") from error
        if not isinstance(data, list):
            raise TaskError(f"{file}: a {type(data).__name__}; allowed: a list of objects with {FORM}")
        yield from enumerate(data, start=1)
        return
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise TaskError(f"{file}: row {reader.line_num}: not CSV ({error})") from error


def _image_path(root: Path, where: str, name: str) -> Path:
    path = root / name
    inside = root.resolve()
    if not name.strip() or not path.is_file():
        raise TaskError(f"{where}: image {name!r} is not in {root}; allowed: a path of an image, from that folder on")
    if not path.resolve().is_relative_to(inside):
        raise TaskError(f"{where}: image {name!r} is {path.resolve()}, outside {root}; copy the file into the folder")
    return path.resolve()
