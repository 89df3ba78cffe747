"""The newcomer's path: the Python section of the project's README, run as it is printed there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from test_live import BINARY, SOURCES, Venue, venue

__all__ = ["venue"]

README = SOURCES.parent.parent.parent / "README.md"
WAIT_S = 60

pytestmark = pytest.mark.skipif(not BINARY, reason="CATENA_BIN is not set: no tests against a real venue")


def section() -> str:
    text = README.read_text(encoding="utf-8")
    found = re.search(r"^### A Python function$(.*?)^### ", text, re.MULTILINE | re.DOTALL)
    assert found is not None, "README.md has no section about Python"
    return found.group(1)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", section(), re.MULTILINE | re.DOTALL)


def test_a_function_becomes_a_durable_job_with_a_retry(venue: Venue) -> None:
    (source,) = blocks("python")
    name = source.splitlines()[0].removeprefix("# ").strip()
    folder = Path(venue.folder)
    (folder / name).write_text(source, encoding="utf-8")
    install, commands = blocks("sh")
    assert install.startswith("pip install")
    assert BINARY is not None
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CATENA_")}
    environment |= {"CATENA_VENUE": venue.url, "PYTHONPATH": str(SOURCES), "PYTHONUNBUFFERED": "1"}
    worker = subprocess.Popen([sys.executable, name], cwd=folder, env=environment)

    def run(command: str) -> str:
        words = command.replace("catena ", f"{Path(str(BINARY)).resolve()} ", 1)
        ran = subprocess.run(
            words, shell=True, cwd=folder, env=environment, check=True, timeout=WAIT_S, stdout=subprocess.PIPE, text=True
        )
        return ran.stdout

    try:
        submit, watch = commands.strip().splitlines()
        wait_until_registered(venue)
        job = run(submit).strip()
        seen = run(watch.replace("JOB", job))
        (shown,) = blocks("text")
        expected = [re.sub(r"^\S+Z  ", "", line) for line in shown.strip().splitlines()]
        printed = [re.sub(r"^\S+Z  ", "", line) for line in seen.strip().splitlines()]
        assert expected[-1].endswith("is COMPLETE") and printed[-1] == f"job {job} is COMPLETE", seen
        # However late the second command was: it shows what has happened so far.
        remaining = iter(printed)
        assert all(line in remaining for line in expected[:-1]), seen
        assert run(f"catena jobs get {job} --json").count("Hello, Ada!") >= 1
    finally:
        worker.terminate()
        worker.wait(WAIT_S)


def wait_until_registered(venue: Venue) -> None:
    deadline = time.monotonic() + WAIT_S
    while not any(entry.get("name") == "o/greet" for entry in httpx.get(f"{venue.url}/api/v1/operations").json()):
        assert time.monotonic() < deadline, "the worker did not register its function"
        time.sleep(0.05)
