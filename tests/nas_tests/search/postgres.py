"""A PostgreSQL server of one test: in a temporary folder, on a free port of the loopback interface."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

DEBIAN = Path("/usr/lib/postgresql")


def binaries() -> Path | None:
    """The folder with initdb and postgres: the newest of Debian's, or what is on the path."""
    found = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]) if path.parts[-3].isdigit() else 0)
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return None if on_path is None else Path(on_path).resolve().parent


def skip_without_postgres() -> Path:
    folder = binaries()
    if folder is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    pytest.importorskip("psycopg", reason="psycopg is not installed (pip install 'edgenas[postgres]')")
    return folder


@contextlib.contextmanager
def server(folder: Path) -> Iterator[Server]:
    """A running server whose files are in `folder`."""
    running = Server(folder, skip_without_postgres())
    running.initialise()
    running.start()
    try:
        yield running
    finally:
        running.stop()


class Server:
    def __init__(self, folder: Path, binaries: Path) -> None:
        self._data, self._binaries = folder / "data", binaries
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        # PostgreSQL refuses to run as root.
        self._user = "nobody" if os.getuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://nas@127.0.0.1:{self._port}/postgres"

    def initialise(self) -> None:
        self._data.mkdir(parents=True)
        if self._user is not None:
            user = pwd.getpwnam(self._user)
            os.chown(self._data, user.pw_uid, user.pw_gid)
            for parent in list(self._data.parents)[:-2]:
                if parent.stat().st_uid == 0 and parent != Path("/tmp"):
                    parent.chmod(parent.stat().st_mode | 0o011)
        subprocess.run(
            [str(self._binaries / "initdb"), "-D", str(self._data), "-U", "nas", "--auth=trust", "--no-sync"],
            check=True,
            stdout=subprocess.DEVNULL,
            user=self._user,
            cwd="/",
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        )

    def start(self) -> None:
        self._process = subprocess.Popen(
            [str(self._binaries / "postgres"), "-D", str(self._data), "-p", str(self._port),
             "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=self._user, cwd="/",
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
                time.sleep(0.5)  # it listens a moment before it serves
                return
            time.sleep(0.1)
        raise AssertionError("PostgreSQL did not start within 60 s")

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(2)  # SIGINT: fast shutdown
            self._process.wait(30)
            self._process = None
