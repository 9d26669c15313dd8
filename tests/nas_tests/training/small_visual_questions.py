"""Small images and questions about them that the tests share."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nas.training.data.visual_questions import VisualQuestion, visual_question_task
from nas.training.recipe import Recipe
from nas.training.task import Task, TaskSettings
from search_spaces.candidate import Candidate
from search_spaces.hybrid_vision_language import HybridVisionLanguageSpace
from search_spaces.space import replay

COLOURS = {"red": (220, 20, 20), "blue": (20, 20, 220)}
SIDES = ("left", "right")
SETTINGS = TaskSettings(name="vqa-folder", context=24)
QUICK = Recipe(epochs=4, batch_size=16, learning_rate=3e-3, label_smoothing=0.0, num_threads=1)


def picture(colour: str, side: str, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Grey noise of 3 x 6 x 8 with its left or right half in a colour."""
    image = np.broadcast_to(generator.integers(90, 150, size=(1, 6, 8)), (3, 6, 8)).copy()
    half = slice(0, 4) if side == "left" else slice(4, 8)
    image[:, :, half] = np.array(COLOURS[colour])[:, None, None] + generator.integers(0, 20, size=(3, 6, 4))
    return image.astype(np.uint8)


def pictures_and_questions(num_images: int, seed: int = 0) -> tuple[NDArray[np.uint8], list[tuple[int, str, str]]]:
    """Images, and (image, question, answer): two colours, two sides, and yes or no."""
    generator = np.random.default_rng(seed)
    images, asked = [], []
    for index in range(num_images):
        colour, side = str(generator.choice(list(COLOURS))), str(generator.choice(SIDES))
        images.append(picture(colour, side, generator))
        asked += [(index, "what colour?", colour), (index, "which side?", side)]
        asked.append((index, "is it red?", "yes" if colour == "red" else "no"))
    return np.stack(images), asked


def small_task(num_images: int = 120, settings: TaskSettings = SETTINGS, seed: int = 0) -> Task:
    images, asked = pictures_and_questions(num_images, seed)
    return visual_question_task(
        settings,
        images,
        [
            VisualQuestion(where=f"made: row {row}", image=image, question=question, answer=answer)
            for row, (image, question, answer) in enumerate(asked)
        ],
    )


def write_folder(folder: Path, num_images: int = 12, *, as_json: bool = False, seed: int = 0) -> list[dict[str, str]]:
    """Writes images and questions.csv or questions.json; returns its rows."""
    images, asked = pictures_and_questions(num_images, seed)
    folder.mkdir(parents=True, exist_ok=True)
    for index, image in enumerate(images):
        Image.fromarray(image.transpose(1, 2, 0)).save(folder / f"{index}.png")
    rows = [{"image": f"{image}.png", "question": question, "answer": answer} for image, question, answer in asked]
    write_rows(folder, rows, as_json=as_json)
    return rows


def write_rows(folder: Path, rows: list[dict[str, str]], *, as_json: bool = False) -> None:
    if as_json:
        (folder / "questions.json").write_text(json.dumps(rows))
        return
    with (folder / "questions.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def candidate_of(task: Task, *mixers: str) -> Candidate:
    """A network of two layers for `task`."""
    choices: dict[str, int | str] = {"stem.channels": 16, "stem.patch": 8, "width": 96, "depth": 2}
    for layer in range(2):
        mixer = mixers[layer % len(mixers)] if mixers else "attention_q4_kv4"
        choices |= {f"layer{layer}.mixer": mixer, f"layer{layer}.expansion": 1}
    return replay(HybridVisionLanguageSpace(task.input, task.head), choices)
