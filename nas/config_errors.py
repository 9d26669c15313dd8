"""Turns what pydantic finds wrong into lines a person can act on: key, value seen, what is allowed."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import annotated_types
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from nas.errors import NasError

_KINDS: dict[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
}
_LONGEST_VALUE = 60
"""Characters of a wrong value that are repeated in its line."""


class ConfigError(NasError, ValueError):
    """A configuration that cannot be used.

    Attributes:
        mistakes: one line each, every one that was found.
    """

    def __init__(self, source: str, mistakes: Sequence[str]) -> None:
        self.mistakes = tuple(mistakes)
        lines = self.mistakes[0] if len(mistakes) == 1 else f"{len(mistakes)} mistakes\n  " + "\n  ".join(mistakes)
        super().__init__(f"{source}: {lines}")


def fields_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """(dotted key, field) of every key of a model and the models within it, in order."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from fields_of(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def is_optional(field: FieldInfo) -> bool:
    """True when the key may be left without a value."""
    return type(None) in typing.get_args(field.annotation)


def allowed(field: FieldInfo) -> str:
    """What a key may hold, in words, from its type and constraints.

    >>> from pydantic import Field
    >>> class Section(BaseModel):
    ...     epochs: int = Field(default=1, ge=1, le=9)
    >>> allowed(Section.model_fields["epochs"])
    'a whole number, at least 1, at most 9'
    """
    words = [_kind(field.annotation)]
    for rule in field.metadata:
        match rule:
            case annotated_types.Ge(ge=bound):
                words.append(f"at least {bound}")
            case annotated_types.Gt(gt=bound):
                words.append(f"above {bound}")
            case annotated_types.Le(le=bound):
                words.append(f"at most {bound}")
            case annotated_types.Lt(lt=bound):
                words.append(f"below {bound}")
            case annotated_types.MinLen(min_length=1):
                words.append("not empty")
            case _:
                pass
    return ", ".join(words)


def _kind(annotation: object) -> str:
    if annotation in _KINDS:
        return _KINDS[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return "one of " + ", ".join(str(argument) for argument in arguments)
    if origin is tuple and typing.get_origin(arguments[0]) is tuple:
        return "a table of names and " + _kind(typing.get_args(arguments[0])[1])
    if origin is tuple:
        return f"a list of {_kind(arguments[0])}"
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_kind(argument) for argument in arguments if argument is not type(None))
    return str(annotation)


def closest(seen: str, known: Collection[str]) -> str | None:
    """The known key or value that `seen` was most likely meant to be.

    A key under the wrong section counts as close to the same key in the right one.

    >>> closest("training.epoch", ["training.epochs", "search.trials"])
    'training.epochs'
    >>> closest("search.epochs", ["training.epochs", "search.trials"])
    'training.epochs'
    """
    for key in known:
        if key.rpartition(".")[2] == seen.rpartition(".")[2]:
            return key
    return next(iter(difflib.get_close_matches(seen, list(known), n=1)), None)


def unknown_value(key: str, seen: str, known: Collection[str]) -> str:
    """The line for a value that is none of the `known` ones."""
    meant = closest(seen, known)
    hint = f" (did you mean {meant}?)" if meant else ""
    return f"{key}: unknown {seen!r}{hint}; allowed: {', '.join(known)}"


def explain(model: type[BaseModel], error: ValidationError) -> list[str]:
    """One line for each mistake that pydantic found in the data of `model`."""
    fields = dict(fields_of(model))
    return [_line(fields, detail) for detail in error.errors(include_url=False)]


def show(value: object) -> str:
    """A value as it is repeated in a message, cut when it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def _line(fields: dict[str, FieldInfo], detail: Any) -> str:
    names = [part for part in detail["loc"] if isinstance(part, str)]
    key = ".".join(names)
    place = key + "".join(f"[{part}]" for part in detail["loc"] if isinstance(part, int))
    if detail["type"] == "extra_forbidden":
        return f"{key}: unknown key{_meant(key, fields)}; allowed: {', '.join(_siblings(key, fields))}"
    if detail["type"] == "value_error":
        return f"{place}: {detail['ctx']['error']}"
    if key in fields:
        return f"{place}: seen {show(detail['input'])}; allowed: {allowed(fields[key])}"
    inside = [known.rpartition(".")[2] for known in fields if known.startswith(key + ".")]
    if inside:
        return f"{place}: seen {show(detail['input'])}; allowed: a section [{key}] with {', '.join(inside)}"
    return f"{place}: seen {show(detail['input'])}; {detail['msg']}"


def _meant(key: str, fields: dict[str, FieldInfo]) -> str:
    meant = closest(key, [*fields, *_siblings("", fields)])
    return f" (did you mean {meant}?)" if meant else ""


def _siblings(key: str, fields: dict[str, FieldInfo]) -> list[str]:
    """The keys of the section that `key` is in; the sections when it is in none."""
    section = key.rpartition(".")[0]
    inside = [known.rpartition(".")[2] for known in fields if section and known.rpartition(".")[0] == section]
    return inside or sorted({known.partition(".")[0] for known in fields})
