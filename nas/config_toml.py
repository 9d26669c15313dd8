"""Writes configuration types as TOML: one configuration's values, or every key with its meaning and default."""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from nas.config_errors import ConfigError, allowed, is_optional

_WIDTH = 100
_MAX_BYTES = 1 << 20


def toml_value(value: object) -> str:
    """One value as TOML.

    >>> print(toml_value(("5ms", 'a "b"')))
    ["5ms", "a \\"b\\""]
    >>> toml_value({"english": "books/"})
    '{english = "books/"}'
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str() | Path():
            # JSON's strings are TOML's, but for DEL, and surrogate pairs, which ensure_ascii=False avoids.
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        case tuple() | list():
            return "[" + ", ".join(toml_value(item) for item in value) + "]"
        case Mapping():
            return "{" + ", ".join(f"{_key(name)} = {toml_value(item)}" for name, item in value.items()) + "}"
        case _:
            raise TypeError(f"{type(value).__name__} has no TOML form here")


def toml_of(config: BaseModel) -> str:
    """Every value of a configuration, section by section; what is not set is left out."""
    sections = []
    for name in type(config).model_fields:
        values = getattr(config, name).model_dump()
        lines = [f"{key} = {toml_value(value)}" for key, value in values.items() if value is not None]
        sections.append("\n".join([f"[{name}]", *lines]))
    return "\n\n".join(sections) + "\n"


def commented_toml_of(config: BaseModel, preamble: str) -> str:
    """Every key of a configuration with its meaning, what is allowed, and its value, which is shown as the default."""
    parts = [_comment(preamble)]
    for name in type(config).model_fields:
        section = getattr(config, name)
        values = section.model_dump()
        about = (type(section).__doc__ or "").strip().split(". ")[0].split("\n")[0].rstrip(".") + "."
        keys = [_commented_key(key, inner, values[key]) for key, inner in type(section).model_fields.items()]
        parts.append("\n".join([_comment(about), f"[{name}]", "", "\n\n".join(keys)]))
    return "\n\n".join(parts) + "\n"


def _key(name: object) -> str:
    """A key as TOML: bare where it may be."""
    text = str(name)
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else toml_value(text)


def _commented_key(key: str, field: FieldInfo, default: object) -> str:
    rule = allowed(field)
    about = f"{(field.description or '').strip()} Allowed: {rule}."
    if default is None:
        assert is_optional(field)
        example = next(iter(field.examples or []), None)
        value = f" {toml_value(example)}" if example is not None else ""
        return f"{_comment(about + ' Not set by default.')}\n# {key} ={value}"
    return f"{_comment(about)}\n{key} = {toml_value(default)}"


def _comment(text: str) -> str:
    return "\n".join(textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# "))


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        ConfigError: no such file, not readable, not UTF-8, or not TOML (with line and column).
    """
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(str(path), ["cannot be read: is no plain file; allowed: a TOML file"])
        if path.is_file() and path.stat().st_size > _MAX_BYTES:
            raise ConfigError(str(path), [f"{path.stat().st_size} bytes; allowed: {_MAX_BYTES}, no study needs more"])
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(str(path), ["no such file; `nas init` writes one with every key explained"]) from None
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror}; allowed: a TOML file"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), [f"not UTF-8 at byte {error.start}; save it as UTF-8 text"]) from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Python 3.11 says "at end of document" without a number.
        lines = text.splitlines() or [""]
        where = f"line {len(lines)}, column {len(lines[-1]) + 1}"
        reason = str(error).replace("at end of document", f"at {where}, the end of the file")
        raise ConfigError(str(path), [f"not valid TOML: {reason}"]) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets thousands deep
        raise ConfigError(str(path), [f"not a configuration: {str(error).splitlines()[0]}"]) from error
