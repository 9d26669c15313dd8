from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from nas.training.data.sources import load_task
from nas.training.task import Task, TaskError, TaskSettings
from tests.nas_tests.training.small_visual_questions import small_task, write_folder, write_rows


def load(root: Path, **settings: Any) -> Task:
    return load_task(TaskSettings(name="vqa-folder", path=str(root), context=24, **settings))


def refusal(root: Path, **settings: Any) -> str:
    with pytest.raises(TaskError) as caught:
        load(root, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_folder_gives_the_task_of_its_images_and_questions(tmp_path: Path, as_json: bool) -> None:
    write_folder(tmp_path, 20, as_json=as_json)
    assert load(tmp_path).fingerprint == small_task(20).fingerprint


def test_splits_of_the_file_are_used_and_a_missing_one_is_drawn(tmp_path: Path) -> None:
    rows = write_folder(tmp_path, 20)
    write_rows(tmp_path, [{**row, "split": "test" if index >= 45 else ""} for index, row in enumerate(rows)])
    task = load(tmp_path)
    assert (len(task.train), len(task.val), len(task.test)) == (33, 12, 15)


def test_images_in_folders_below_are_found_and_resized(tmp_path: Path) -> None:
    rows = write_folder(tmp_path, 6)
    (tmp_path / "deep").mkdir()
    for path in tmp_path.glob("*.png"):
        path.rename(tmp_path / "deep" / path.name)
    write_rows(tmp_path, [{**row, "image": f"deep/{row['image']}"} for row in rows])
    assert load(tmp_path, resize=(16, 12)).input.integer("height") == 16


def test_grey_images_have_one_channel(tmp_path: Path) -> None:
    write_folder(tmp_path, 6)
    for path in tmp_path.glob("*.png"):
        Image.open(path).convert("L").save(path)
    assert load(tmp_path).input.integer("channels") == 1


def test_an_image_set_without_questions_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, 3)
    (tmp_path / "questions.csv").write_text("image,question,answer\n")
    assert refusal(tmp_path).startswith(f"{tmp_path / 'questions.csv'}: no questions; allowed")
    (tmp_path / "questions.csv").unlink()
    assert refusal(tmp_path).startswith(f"{tmp_path}: 3 image(s) and no questions; allowed: a folder with")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": "gone.png"}, "row 5: image 'gone.png' is not in"),
        ({"image": ""}, "row 5: image '' is not in"),
        ({"answer": ""}, "row 5: the answer is empty"),
        ({"question": "  "}, "row 5: the question is empty"),
        ({"question": "q" * 30}, "row 5: question and answer take 35 tokens; allowed: task.context = 24"),
        ({"answer": "a\x03b"}, "row 5: the answer is"),
    ],
)
def test_a_row_that_cannot_be_learnt_is_refused_by_its_line(
    tmp_path: Path, change: dict[str, str], message: str
) -> None:
    rows = write_folder(tmp_path, 4)
    rows[3] = {**rows[3], **change}
    write_rows(tmp_path, rows)
    assert f"{tmp_path / 'questions.csv'}: {message}" in refusal(tmp_path)


def test_an_image_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    write_folder(tmp_path, 4)
    (tmp_path / "2.png").write_bytes(b"not an image")
    assert f"{tmp_path / '2.png'}: not a readable PNG or JPEG image" in refusal(tmp_path)


def test_images_of_several_sizes_are_refused_unless_resized(tmp_path: Path) -> None:
    write_folder(tmp_path, 6)
    Image.fromarray(np.zeros((9, 9, 3), dtype=np.uint8)).save(tmp_path / "2.png")
    assert "set task.resize" in refusal(tmp_path)
    assert load(tmp_path, resize=(6, 8)).input.integer("width") == 8


def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    write_folder(tmp_path / "data", 4)
    (tmp_path / "data" / "1.png").rename(tmp_path / "secret.png")
    (tmp_path / "data" / "1.png").symlink_to(tmp_path / "secret.png")
    assert "outside" in refusal(tmp_path / "data")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("questions.json", "{", "not JSON"),
        ("questions.json", "{}", "a dict; allowed: a list"),
        ("questions.json", "[3]", "row 1: a int; allowed"),
        ("questions.json", '[{"image": "0.png", "question": "q", "answer": 3}]', "row 1: answer is 3; allowed"),
        ("questions.json", '[{"image": "0.png", "question": "q"}]', "row 1: missing ['answer'], unknown []"),
        ("questions.csv", "image,question,reply\n0.png,q,a\n", "row 2: missing ['answer'], unknown ['reply']"),
        ("questions.csv", "image,question,answer\n0.png,q\n", "row 2: answer is None; allowed"),
        ("questions.csv", "image,question,answer\n0.png,q,a,b\n", "row 2: missing [], unknown ['None']"),
        ("questions.csv", "image,question,answer,split\n0.png,q,a,dev\n", "row 2: split is 'dev'; allowed: train"),
    ],
)
def test_a_file_that_is_no_list_of_questions_is_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    write_folder(tmp_path, 2)
    (tmp_path / "questions.csv").unlink()
    (tmp_path / name).write_text(content)
    assert re.search(re.escape(message), refusal(tmp_path))


def test_text_that_is_not_utf8_and_two_files_are_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, 2)
    (tmp_path / "questions.csv").write_bytes(b"image,question,answer\n0.png,\xff,a\n")
    assert "not UTF-8" in refusal(tmp_path)
    (tmp_path / "questions.json").write_text("[]")
    assert "one of them" in refusal(tmp_path)


def test_a_folder_that_is_missing_is_refused(tmp_path: Path) -> None:
    assert "not a folder" in refusal(tmp_path / "nowhere")
    with pytest.raises(TaskError, match=r"path is missing; set task\.path"):
        load_task(TaskSettings(name="vqa-folder"))
