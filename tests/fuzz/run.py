#!/usr/bin/env python3
"""Fuzzes a venue with its own OpenAPI document: it may refuse anything, but must not fail.

    python3 tests/fuzz/run.py --binary target/debug/catena [--seconds 60] [--seed 1]

Schemathesis makes requests that fit the document and requests that do not. No answer may be a 5xx
but the documented 504 (and 503 for code, without an executor), every status and every body must be one that the document has, and the
venue must not log an error.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import urllib.request
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import harness  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
]
LEFT_OUT = {
    "/api/v1/jobs/{id}/sse": "a stream has no end to wait for; tests/api has it",
}
# Operations that end at once for any input.
OPERATIONS = [
    "test:echo",
    "test:error",
    "test:random",
    "v/ops/json/merge",
    "v/ops/json/select",
    "v/ops/schema/infer",
    "v/ops/schema/validate",
    "v/ops/auth/whoami",
]
# MCP methods that respond at once.
METHODS = ["initialize", "ping", "tools/list", "tools/call", "tasks/get", "tasks/list", "tasks/cancel", "server/discover"]
CONFIG = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 504]

# There is no executor, so that code cannot run.
[[operations]]
include-path = "/contract/v1/jobs"
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 503]
"""


def ask(url: str, method: str = "GET", body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=30) as answer:
        return json.loads(answer.read())


def known_things(api: str) -> dict[str, list[str]]:
    """Jobs in several states and assets, so that generated requests refer to something that exists."""
    jobs = [
        ask(f"{api}/invoke", "POST", {"operation": operation, "input": {"message": "x"}})["id"]
        for operation in ("test:echo", "test:error", "test:never", "test:chat", "test:auth", "test:pause")
        for _ in range(4)
    ]
    assets = ask(f"{api}/assets?limit=20")["items"]
    names = [operation["name"] for operation in ask(f"{api}/operations")]
    return {
        "jobs": jobs,
        "refs": assets + names,
        "name": names + ["test", "json"],
        "operations": OPERATIONS,
        "methods": METHODS,
        "tools": ["test_echo", "test_error", "test_random", "json_merge", "auth_whoami", "test_chat", "test_pause"],
        "interactive": ["test:chat", "test:auth", "test:pause", "test:never"],
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--binary", type=pathlib.Path, required=True)
    arguments.add_argument("--seconds", type=int, default=60)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    steps = harness.Steps()
    python = harness.environment("fuzz", HERE / "requirements.txt")
    config = harness.TARGET / "fuzz" / "schemathesis.toml"
    config.write_text(CONFIG)
    # A run waits for the end of its job, so every job must end soon.
    limits = ["--limits-execution", "1s", "--limits-interactive", "3s"]
    with harness.venue(options.binary, *limits) as venue:
        document = ask(f"{venue.url}/openapi.json")
        for path, reason in LEFT_OUT.items():
            assert path in document["paths"], f"{path} is not there to be left out"
            print(f"  left out: {path}: {reason}")
        count = sum(len(methods) for methods in document["paths"].values())
        steps.say(f"fuzzing {count - len(LEFT_OUT)} operations for {options.seconds} s, seed {options.seed}")
        command = [str(python.parent / "st"), "--config-file", str(config), "--no-color", "run"]
        command += [f"{venue.url}/openapi.json", "--checks", ",".join(CHECKS)]
        command += ["--phases", "examples,coverage,fuzzing", "--max-time", str(options.seconds)]
        command += ["--seed", str(options.seed), "--request-timeout", "20", "--warnings", "off"]
        command += ["--suppress-health-check", "all", "--output-sanitize", "false"]
        command += [argument for path in LEFT_OUT for argument in ("--exclude-path", path)]
        environment = {
            **os.environ,
            "CATENA_FUZZ_KNOWN": json.dumps(known_things(f"{venue.url}/api/v1")),
            "PYTHONPATH": str(HERE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SCHEMATHESIS_HOOKS": "hooks",
        }
        ended = subprocess.run(command, cwd=harness.TARGET / "fuzz", env=environment)
        problems = venue.problems()
        alive = ask(f"{venue.url}/api/v1/status")["status"]
    if ended.returncode != 0:
        raise SystemExit(f"schemathesis found something (exit {ended.returncode})")
    if problems or alive != "OK":
        raise SystemExit("the venue logged errors:\n" + "".join(problems))
    steps.say("the venue refused what it had to, and broke nowhere")


if __name__ == "__main__":
    main()
