"""What `nas profile` was asked about: an ONNX file, a candidate's file, or a candidate of a study."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from nas.errors import NasError
from nas.phases import chosen_phase
from search_spaces.candidate import Candidate, CandidateError

CANDIDATE_NAME = "candidate.json"


class TargetError(NasError):
    """Something that cannot be profiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxTarget:
    """An ONNX file, and sizes for those of its inputs that leave some open."""

    name: str
    path: Path
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateTarget:
    """A candidate; its weights are random, which latency does not notice.

    Attributes:
        name: its id.
        candidate: the network.
        phase: entry point; None means the first of its space, see `in_phase`.
    """

    name: str
    candidate: Candidate
    phase: str | None = None


Target = OnnxTarget | CandidateTarget


def find_target(text: str, study: Path | None, shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()) -> Target:
    """The target that `text` names.

    Args:
        text: path of an `.onnx` file, of a candidate's JSON file or of a winner's folder; or with
            `study` the id, or the start of an id, of one of its candidates.
        study: a results folder.
        shapes: sizes of inputs, for ONNX files.

    Raises:
        TargetError: nothing there, or several; one line.
    """
    if study is not None:
        return _of_study(text, study)
    path = Path(text)
    if path.is_dir() and (path / CANDIDATE_NAME).is_file():
        path = path / CANDIDATE_NAME
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        raise TargetError(
            f"{text}: {what}; give an .onnx file, a candidate's JSON file, or a candidate's id with --study FOLDER"
        )
    if path.suffix != ".json":
        return OnnxTarget(name=path.name, path=path, shapes=shapes)
    return _from_file(path)


def in_phase(target: Target, phase: str | None) -> Target:
    """The target with its phase settled: the one named, else the first that a candidate has.

    Raises:
        PhaseError: a candidate without a phase of that name.
        TargetError: a phase was named, and the target is a file with one entry point.
    """
    if isinstance(target, OnnxTarget):
        if phase is not None:
            raise TargetError(f"{target.name}: an ONNX file has one entry point; leave out --phase {phase}")
        return target
    from search_spaces.registry import make_space

    network = target.candidate
    space = make_space(network.space, network.input, network.head)
    return replace(target, phase=chosen_phase(phase, [each.name for each in space.phases(network)]))


def _from_file(path: Path) -> CandidateTarget:
    try:
        candidate = Candidate.from_json(json.loads(path.read_text()))
    except OSError as error:
        raise TargetError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not JSON, not text, or not a candidate
        what = str(error) if isinstance(error, CandidateError) else f"not JSON ({error})"
        raise TargetError(f"{path}: not a candidate: {what}") from error
    return CandidateTarget(name=candidate.candidate_id, candidate=candidate)


def _of_study(text: str, study: Path) -> CandidateTarget:
    from nas.search.study import DATABASE_NAME

    database = study / DATABASE_NAME
    known = _candidates(database) if database.is_file() else _winners(study)
    found = {each.candidate_id: each for each in known if text and each.candidate_id.startswith(text)}
    if len(found) != 1:
        shown = ", ".join(sorted({each.candidate_id for each in known})[:6])
        what = f"{len(found)} candidates start with {text!r}" if found else f"no candidate {text!r}"
        raise TargetError(f"study {study}: {what}; {f'it has {shown}' if shown else 'it has none'}")
    ((name, candidate),) = found.items()
    return CandidateTarget(name=name, candidate=candidate)


def _candidates(database: Path) -> list[Candidate]:
    from urllib.parse import quote

    from nas.ledger import Ledger

    with Ledger(f"sqlite:///{quote(database.as_posix())}") as ledger:
        return [record.candidate for record in ledger.records()]


def _winners(study: Path) -> list[Candidate]:
    files = sorted(study.glob(f"winners/*/{CANDIDATE_NAME}"))
    if not files:
        raise TargetError(f"study {study}: no study.db and no winners in it; give a results folder of nas search")
    return [_from_file(path).candidate for path in files]


def parse_shapes(texts: list[str]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Reads `name:1x3x224x224`, one an input.

    >>> parse_shapes(["x:1x3x48x320"])
    (('x', (1, 3, 48, 320)),)
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, separator, sizes = text.rpartition(":")
        parts = sizes.lower().split("x")
        if (
            not separator
            or not name
            or not all(part.isascii() and part.isdigit() and len(part) < 10 and int(part) > 0 for part in parts)
        ):
            raise TargetError(f"--input {text!r}: allowed is NAME:SIZExSIZE..., for instance x:1x3x224x224")
        if name in shapes:
            raise TargetError(f"--input: {name!r} is given twice")
        shapes[name] = tuple(int(part) for part in parts)
    return tuple(shapes.items())
