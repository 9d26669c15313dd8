"""A folder of PNG or JPEG images, one sub-folder a class, with or without splits above them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nas.training.data.assemble import ImageSource, LabelledImages, image_task
from nas.training.data.encoded_images import OpenBytes, channels_of, decode_images, modes_of
from nas.training.task import Task, TaskError, TaskSettings, user_path

SUFFIXES = (".png", ".jpg", ".jpeg")

_Listing = list[tuple[Path, int]]


def load_image_folder(settings: TaskSettings) -> Task:
    """Reads `path/class/*.png|jpg` or `path/{train,val,test}/class/...`; classes in the order of their names."""
    if settings.path is None:
        raise TaskError(
            "task 'image-folder': path is missing; set task.path (--data-path) to a folder with one folder a class"
        )
    root = user_path(settings.path)
    if not root.is_dir():
        raise TaskError(f"{root}: not a folder; allowed: a folder with one folder a class")
    parts = [name for name in ("train", "val", "test") if (root / name).is_dir()]
    if parts and "train" not in parts:
        raise TaskError(f"{root}: has {', '.join(parts)} but no train; add train, or put the classes at the top")
    folders = {name: root / name for name in parts} if parts else {"train": root}
    class_names = _class_names(folders["train"], root)
    listings = {name: _list_images(folder, class_names, root) for name, folder in folders.items()}
    # Header pass over all splits first, so that train and test agree on the number of channels.
    everything = [_source(path) for listing in listings.values() for path, _ in listing]
    channels = channels_of(modes_of(everything))
    loaded = {
        name: LabelledImages(
            origin=str(folders[name]),
            images=decode_images([_source(path) for path, _ in listing], resize=settings.resize, num_channels=channels),
            labels=np.array([label for _, label in listing], dtype=np.int64),
        )
        for name, listing in listings.items()
    }
    source = ImageSource(class_names=class_names, train=loaded["train"], val=loaded.get("val"), test=loaded.get("test"))
    return image_task(settings, source)


def _source(path: Path) -> tuple[str, OpenBytes]:
    return str(path), lambda: path


def _class_names(folder: Path, root: Path) -> tuple[str, ...]:
    names = tuple(sorted(entry.name for entry in _entries(folder, root) if entry.is_dir()))
    if len(names) < 2:
        raise TaskError(f"{folder}: {len(names)} class folder(s) {list(names)}; allowed: at least 2")
    return names


def _list_images(folder: Path, class_names: tuple[str, ...], root: Path) -> _Listing:
    """Every image of every class, sorted; an empty or an unknown class is refused by name."""
    extra = sorted({entry.name for entry in _entries(folder, root) if entry.is_dir()} - set(class_names))
    if extra:
        raise TaskError(f"{folder}: class folder(s) {extra} that train has not; allowed: {list(class_names)}")
    listing: _Listing = []
    for label, name in enumerate(class_names):
        entries = _entries(folder / name, root) if (folder / name).is_dir() else []
        images = sorted(path for path in entries if path.suffix.lower() in SUFFIXES and path.is_file())
        if not images:
            raise TaskError(f"{folder / name}: no images of class {name!r}; allowed: {', '.join(SUFFIXES)} files")
        listing += [(path, label) for path in images]
    return listing


def _entries(folder: Path, root: Path) -> list[Path]:
    """Visible entries of a folder; one whose real place is outside `root` is refused, not followed."""
    inside = root.resolve()
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    for entry in entries:
        try:
            is_inside = entry.resolve().is_relative_to(inside)
        except (RuntimeError, OSError) as error:  # a link to itself
            raise TaskError(f"{entry}: a link that leads nowhere ({error}); remove it") from error
        if not is_inside:
            raise TaskError(f"{entry}: a link to {entry.resolve()}, outside {root}; copy the file into the folder")
    return entries
