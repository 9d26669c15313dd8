"""First code of a sandboxed child: `python -I -S child.py PARENT_PID RESULT_FD`, the job on stdin.

It runs before the import path is set, so it uses the standard library only, and little of that.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import traceback
from typing import Any

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Asks the kernel to kill this process when its parent ends; leaves when it already has.

    The request is per process and is lost when the user id changes: call it again after that.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Runs the job's entry point and writes its answer, or why there is none, as one JSON object."""
    parent, result = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent)
    # tvm_ffi imports torch where it is installed: 3 s and 385 MB that a measurement must not carry.
    sys.modules["torch"] = None  # type: ignore[assignment]
    # Python ignores it and turns it into OSError in the middle of someone's write; dying is clearer.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    job = json.load(sys.stdin)
    sys.path.extend(path for path in job["paths"] if path not in sys.path)
    answer = _run(job, parent)
    content = json.dumps(answer).encode()
    while content:
        content = content[os.write(result, content) :]
    # Destructors of a candidate's libraries have no say in how the job ended.
    sys.stdout.flush()
    os._exit(0)


def _run(job: dict[str, Any], parent: int) -> dict[str, Any]:
    # `profilers` can only be imported now that the path is set.
    from profilers.errors import ChildFailureError
    from profilers.seal import Seal

    module, _, function = job["entry"].partition(":")
    try:
        entry = getattr(importlib.import_module(module), function)
        return {"answer": entry(job["job"], Seal(job["limits"], parent))}
    except ChildFailureError as error:
        return {"kind": error.failure.kind, "reason": error.failure.reason}
    except MemoryError:
        return {"kind": "out_of_memory", "reason": "the child ran into its memory limit"}
    except Exception:  # process boundary: the traceback goes to the parent
        return {"kind": "crashed", "reason": traceback.format_exc()}


if __name__ == "__main__":
    main()
