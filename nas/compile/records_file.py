"""Tuning records as a file that travels: written whole, read with suspicion, merged into a database.

One JSON object a line. The first says whose records follow, how many, and the SHA-256 of everything after it, so
that a file that was cut short or changed is refused as a whole. Nothing in it is run or unpickled; a schedule is a
list of steps, and only the kinds of values that steps are made of are let through.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nas.compile.database import KernelRecord, TuningDatabase
from nas.errors import NasError
from nas.report.atomic import write_atomic

_KIND = "nas-tuning-records"
_FORMAT = 1
MAX_FILE_BYTES = 512 << 20
"""Some 20,000 records; a space has a few hundred."""
MIN_LATENCY_S, MAX_LATENCY_S = 5e-9, 600.0
"""An empty call takes longer than the one; no kernel of a network that is searched for as long as the other."""
MAX_TRIALS = 10_000_000
MAX_TRACE_BYTES = 4 << 20
_FIELDS = tuple(KernelRecord.__slots__)
_NODE = re.compile(r"None|bool|int|float|ffi\.(Array|Map|String)|(ir|prim|s_tir|tirx)\.[A-Za-z0-9]+")
"""Types of values that a schedule's steps hold; functions, modules and tensors are none of them."""
_NODES_OF_CODE = re.compile(r".*(Module|Func|Function|Target|PrimFunc|Schedule|State)")


class RecordsFileError(NasError):
    """A file of records that cannot be used: says why and what to do."""


def export_records(database: TuningDatabase, path: Path) -> int:
    """Writes all records of a database; says how many.

    Raises:
        RecordsFileError: there are none.
        ReportError: the file cannot be written; what was there before is still there.
    """
    lines = [json.dumps([getattr(record, name) for name in _FIELDS]) for record in database.records()]
    if not lines:
        raise RecordsFileError(f"tuning database {database.path} has no records to export; run `nas tune` first")
    body = "".join(line + "\n" for line in lines).encode()
    header = {
        "kind": _KIND,
        "format": _FORMAT,
        **database.identity,
        "num_records": len(lines),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    write_atomic(path, json.dumps(header).encode() + b"\n" + body)
    return len(lines)


def import_records(database: TuningDatabase, path: Path) -> tuple[int, int]:
    """Merges a file's records into a database: all that are faster than known ones, or none at all.

    Returns:
        How many the file holds, and how many were new or faster.

    Raises:
        RecordsFileError: not such a file, damaged, or of another target or version.
        TuningDatabaseError: they could not be written.
    """
    records = read_records(path, database.identity)
    return len(records), database.merge(records)


def read_records(path: Path, identity: Mapping[str, str]) -> list[KernelRecord]:
    """The records of a file, each checked.

    Args:
        path: as `export_records` wrote it.
        identity: target and versions that they must be of.

    Raises:
        RecordsFileError: see `import_records`.
    """
    content = _read(path)
    first, _, body = content.partition(b"\n")
    header = _header(path, first)
    for name, wanted in identity.items():
        if header.get(name) != wanted:
            raise RecordsFileError(
                f"{path}: records of {name} {_shown(header.get(name))}, this needs {wanted!r};"
                " a schedule fits only what it was tuned for: tune here, or import on such a device"
            )
    lines = body.splitlines()
    if header.get("num_records") != len(lines) or header.get("sha256") != hashlib.sha256(body).hexdigest():
        raise RecordsFileError(
            f"{path}: cut short or changed: {len(lines)} of {_shown(header.get('num_records'))} records, and the hash"
            " differs; copy it again, or export it again"
        )
    return [_record(path, number, line) for number, line in enumerate(lines, start=1)]


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise RecordsFileError(f"{path}: not a file; give a file that `nas tune --export` wrote")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise RecordsFileError(f"{path}: {size} bytes; allowed: {MAX_FILE_BYTES}")
        return path.read_bytes()
    except OSError as error:
        raise RecordsFileError(f"{path}: {error.strerror}; give a file that `nas tune --export` wrote") from error


def _header(path: Path, line: bytes) -> Mapping[str, Any]:
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("kind") != _KIND:
        raise RecordsFileError(f"{path}: not a file of tuning records; give one that `nas tune --export` wrote")
    if header.get("format") != _FORMAT:
        raise RecordsFileError(f"{path}: format {_shown(header.get('format'))}; this version reads {_FORMAT}")
    return header


def _record(path: Path, number: int, line: bytes) -> KernelRecord:
    try:
        values = json.loads(line)
        json.dumps(values, ensure_ascii=False).encode()  # half of a surrogate pair is no text
        record = KernelRecord(**dict(zip(_FIELDS, values, strict=True)))
        problem = _problem(record)
    except (ValueError, TypeError, RecursionError) as error:
        problem = str(error)
        record = None
    if problem is not None or record is None:
        raise RecordsFileError(f"{path}: record {number}: {problem}; nothing was imported, export it again")
    return record


def _problem(record: KernelRecord) -> str | None:
    """What makes a record unusable; None when nothing does."""
    if not isinstance(record.key, str) or not re.fullmatch("[0-9a-f]{24}", record.key):
        return f"key {_shown(record.key)} is not 24 hexadecimal digits"
    if not isinstance(record.name, str) or not re.fullmatch(r"[A-Za-z0-9_]{1,500}", record.name):
        return f"name {_shown(record.name)} is no kernel's"
    if not isinstance(record.latency_s, float) or not MIN_LATENCY_S <= record.latency_s <= MAX_LATENCY_S:
        return f"latency {_shown(record.latency_s)} s is no time of a kernel"
    counts = (record.num_failed, record.num_trials)
    if any(type(count) is not int for count in counts) or not 0 <= record.num_failed < record.num_trials <= MAX_TRIALS:
        return f"{_shown(record.num_failed)} failed of {_shown(record.num_trials)} trials cannot be"
    if not isinstance(record.trace_json, str) or len(record.trace_json) > MAX_TRACE_BYTES:
        return f"schedule is no text of at most {MAX_TRACE_BYTES} bytes"
    return _trace_problem(record.trace_json)


def _trace_problem(text: str) -> str | None:
    graph = json.loads(text)
    nodes = graph.get("nodes") if isinstance(graph, dict) else None
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        return "schedule is not a graph of nodes"
    root = graph.get("root_index")
    if type(root) is not int or not 0 <= root < len(nodes) or nodes[root].get("type") != "s_tir.Trace":
        return "schedule is not a trace"
    for index, node in enumerate(nodes):
        if not _points_back(node.get("data"), index):
            return f"schedule's node {index} refers to one that is not before it"
        kind = node.get("type")
        if not isinstance(kind, str) or not _NODE.fullmatch(kind) or _NODES_OF_CODE.fullmatch(kind):
            return f"schedule holds a {_shown(kind)}, which no step needs"
    return None


def _points_back(data: object, index: int) -> bool:
    """Whether a node refers to earlier nodes only, as TVM writes them: it follows a cycle until it crashes.

    Every whole number in a list or a record of fields is a reference.
    """
    parts = data if isinstance(data, list) else list(data.values()) if isinstance(data, dict) else []
    return all(
        0 <= part < index if type(part) is int else isinstance(part, str | float | bool) or part is None
        for part in parts
    )


def _shown(value: object) -> str:
    """A value of a stranger's file, short enough for one line."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
