"""Shared by the Python checks: a virtual environment under target/, and a venue.

Nothing is installed twice, nothing is written outside target/ and a temporary folder, and only
processes that were started here are ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
TIMEOUT_S = 30
READY = "the venue is ready"
ENDED = {"COMPLETE", "FAILED", "CANCELLED", "REJECTED", "TIMEOUT"}


def environment(name: str, requirements: pathlib.Path) -> pathlib.Path:
    """The Python of a virtual environment with these requirements, created if necessary."""
    folder = TARGET / name / "venv"
    python = folder / "bin" / "python"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    stamp = folder / "installed"
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"installing {requirements.relative_to(ROOT)} into {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-r", str(requirements)], check=True)
    stamp.write_text(wanted)
    return python


class Venue:
    """A venue in a separate process."""

    def __init__(self, process: subprocess.Popen[str], data: str) -> None:
        self.process = process
        self.data = data
        self.log: list[str] = []
        self.url = f"http://{self._address()}"
        threading.Thread(target=self._drain, daemon=True).start()

    def _address(self) -> str:
        assert self.process.stderr is not None
        # A venue that does not become ready is killed, which ends the log.
        watchdog = threading.Timer(TIMEOUT_S, self.process.kill)
        watchdog.start()
        try:
            for line in self.process.stderr:
                self.log.append(line)
                with contextlib.suppress(ValueError):
                    fields = json.loads(line).get("fields", {})
                    if fields.get("message") == READY:
                        return str(fields["address"])
        finally:
            watchdog.cancel()
        raise SystemExit("the venue did not start:\n" + "".join(self.log))

    def _drain(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)

    def problems(self) -> list[str]:
        """The lines that the venue logged as errors, or as a panic, which is not JSON."""
        return [line for line in self.log if '"ERROR"' in line or not line.startswith("{")]


@contextlib.contextmanager
def venue(binary: pathlib.Path, *flags: str, data: pathlib.Path | None = None) -> Iterator[Venue]:
    """A venue on a free port with an empty folder or the given one, stopped afterwards."""
    with tempfile.TemporaryDirectory(prefix="catena-venue-") as folder:
        data = data or pathlib.Path(folder) / "data"
        command = [str(binary.resolve()), "serve", "--listen", "127.0.0.1:0", "--data"]
        command += [str(data), "--log-format", "json", *flags]
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={name: value for name, value in os.environ.items() if not name.startswith("CATENA_")}
            | {"CATENA_EXECUTORS": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Venue(process, str(data))
        finally:
            process.terminate()
            try:
                process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Api:
    """The grid API of a venue, as far as the checks need it. Every refusal is an error."""

    def __init__(self, url: str) -> None:
        self.url = url

    def request(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                return json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise AssertionError(f"{method} {path} is {error.code}: {text}") from None

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def post(self, path: str, body: Any) -> Any:
        return self.request("POST", path, body)

    def put(self, path: str) -> Any:
        return self.request("PUT", path, {})

    def invoke(self, operation: str, given: Any) -> Any:
        return self.post("/api/v1/invoke", {"operation": operation, "input": given})

    def run(self, operation: str, given: Any) -> Any:
        return self.post("/api/v1/run", {"operation": operation, "input": given})

    def register(self, metadata: Any) -> str:
        return str(self.post("/api/v1/assets", metadata))

    def wait(self, job: str) -> Any:
        """The job once it has ended, or as it is after a while."""
        end = time.monotonic() + TIMEOUT_S
        while True:
            state = self.get(f"/api/v1/jobs/{job}")
            if state["status"] in ENDED or time.monotonic() > end:
                return state
            time.sleep(0.05)


class Steps:
    """Prints each step and the time it took."""

    def __init__(self) -> None:
        self.begun = time.monotonic()

    def say(self, what: str) -> None:
        print(f"[{time.monotonic() - self.begun:5.1f} s] {what}", flush=True)
