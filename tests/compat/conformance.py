#!/usr/bin/env python3
"""Runs the official MCP conformance suite against a venue.

    python3 tests/compat/conformance.py --binary target/debug/catena

The suite and a version of Node.js that it needs are npm packages. Many of its scenarios call tools, resources and
prompts of a made-up server; those that cannot pass are listed below with the reason, and must not pass unnoticed.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import harness  # noqa: E402

PACKAGES = ["@modelcontextprotocol/conformance@0.1.16", "node@22"]
FOLDER = harness.TARGET / "compat" / "conformance"

CONTENT = "results of operations are text and structured content, never images, audio or embedded resources"
SERVER = "a server with sessions only: clients that use a handshake are not asked questions and get no log messages"
TOOL = "the suite calls a tool of a made-up server, which the venue does not have"
PROMPTS = "no operation and no asset is a prompt"
FIXTURE = "the URI of a resource is the DID URL of an asset"

EXPECTED_FAILURES = {
    "logging-set-level": SERVER,
    "completion-complete": PROMPTS,
    "tools-call-simple-text": TOOL,
    "tools-call-error": TOOL,
    "tools-call-image": CONTENT,
    "tools-call-audio": CONTENT,
    "tools-call-embedded-resource": CONTENT,
    "tools-call-mixed-content": CONTENT,
    "tools-call-with-logging": SERVER,
    "tools-call-with-progress": TOOL,
    "tools-call-sampling": SERVER,
    "tools-call-elicitation": SERVER,
    "elicitation-sep1034-defaults": SERVER,
    "elicitation-sep1330-enums": SERVER,
    "resources-read-text": FIXTURE,
    "resources-read-binary": FIXTURE,
    "resources-templates-read": FIXTURE,
    "resources-subscribe": "resources do not change: an asset is what its ID says",
    "resources-unsubscribe": "resources do not change: an asset is what its ID says",
    "prompts-list": PROMPTS,
    "prompts-get-simple": PROMPTS,
    "prompts-get-with-args": PROMPTS,
    "prompts-get-embedded-resource": PROMPTS,
    "prompts-get-with-image": PROMPTS,
}
PASSING = {
    "server-initialize",
    "ping",
    "tools-list",
    "server-sse-multiple-streams",
    "resources-list",
    "dns-rebinding-protection",
}


def install() -> str | None:
    """Installs the packages. Returns why that is not possible."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if (FOLDER / "node_modules" / ".bin" / "conformance").exists() and (FOLDER / "node_modules" / ".bin" / "node").exists():
        return None
    (FOLDER / "package.json").write_text('{"private": true}\n')
    command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *PACKAGES]
    try:
        ended = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=300)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        return str(error)
    return ended.stderr.strip().splitlines()[-1] if ended.returncode != 0 else None


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--binary", type=pathlib.Path, required=True)
    binary: pathlib.Path = arguments.parse_args().binary
    if reason := install():
        print(f"the MCP conformance suite: SKIPPED, it cannot be installed: {reason}")
        return
    modules = FOLDER / "node_modules"
    suite = modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    with harness.venue(binary) as venue:
        command = [str(modules / ".bin" / "node"), str(suite), "server", "--url", f"{venue.url}/mcp"]
        ended = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120)
        problems = venue.problems()
    results = dict(re.findall(r"^[^\w\n]*([a-z0-9-]+): \d+ passed, (\d+) failed", ended.stdout, re.MULTILINE))
    passed = {name for name, failed in results.items() if failed == "0"}
    failed = set(results) - passed
    for name in sorted(failed & set(EXPECTED_FAILURES)):
        print(f"  cannot pass: {name}: {EXPECTED_FAILURES[name]}")
    if failed != set(EXPECTED_FAILURES) or passed != PASSING or problems:
        raise SystemExit(
            f"failed unexpectedly: {sorted(failed - set(EXPECTED_FAILURES))}, passed unexpectedly: "
            f"{sorted(passed - PASSING)}, not run: {sorted((PASSING | set(EXPECTED_FAILURES)) - set(results))}\n"
            + "".join(problems) + ended.stdout[-4000:] + ended.stderr[-2000:]
        )
    print(f"the MCP conformance suite: {len(passed)} scenarios pass, {len(failed)} cannot")


if __name__ == "__main__":
    main()
