#!/usr/bin/env python3
"""Runs the official MCP conformance suite against a venue.

    python3 tests/compat/conformance.py --binary target/debug/catena

The suite and a version of Node.js that it needs are npm packages. Many of its scenarios call tools, resources and
prompts of a made-up server. They are registered here over the public API, so no build of the venue has them. The suite
calls them by names of its own; in a copy of the suite these are replaced by those that the venue gives them: the tool of
the operation `o/x` is `o_x`, and the URI of a resource is the DID URL of its asset. Scenarios that cannot pass are listed
with the reason, and must not pass unnoticed.
"""

from __future__ import annotations

import argparse
import base64
import json
import pathlib
import re
import subprocess
import sys
import threading
import urllib.request
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import harness  # noqa: E402

PACKAGES = ["@modelcontextprotocol/conformance@0.1.16", "node@22"]
FOLDER = harness.TARGET / "compat" / "conformance"

LEVEL = "a level of logging would be state of a session, and nothing is kept for a session"
LOGGING = "the log of a job is text without levels, which GET /api/v1/jobs/{id}/log returns; it is not sent with a call"
SAMPLING = "operations use models that the venue is configured for, never the model of a client"
IMMUTABLE = "resources do not change: an asset is what its ID says, so there is nothing to be told of"

EXPECTED_FAILURES = {
    "logging-set-level": LEVEL,
    "tools-call-with-logging": LOGGING,
    "tools-call-sampling": SAMPLING,
    "resources-subscribe": IMMUTABLE,
    "resources-unsubscribe": IMMUTABLE,
}
PASSING = {
    "server-initialize",
    "ping",
    "completion-complete",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "tools-call-elicitation",
    "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums",
    "server-sse-multiple-streams",
    "resources-list",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
    "dns-rebinding-protection",
}

# A picture of one red pixel, and a tenth of a millisecond of silence.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA=="

IMAGE = {"type": "string", "contentMediaType": "image/png", "contentEncoding": "base64"}
AUDIO = {"type": "string", "contentMediaType": "audio/wav", "contentEncoding": "base64"}
TEXT = {"type": "string", "contentMediaType": "text/plain"}

# The outputs of tools: schema and value.
TOOLS: dict[str, tuple[Any, Any]] = {
    "test_simple_text": ({"type": "string"}, "This is a simple text response for testing."),
    "test_image_content": (IMAGE, PNG),
    "test_audio_content": (AUDIO, WAV),
    "test_embedded_resource": (TEXT, "This is an embedded resource content."),
    "test_multiple_content_types": (
        {"type": "object", "properties": {"image": IMAGE, "document": TEXT}},
        {"image": PNG, "document": "A document."},
    ),
}
OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{n}", "title": title} for n, title in enumerate(["First", "Second", "Third"], 1)]
# The questions of tools: the fields of their forms.
QUESTIONS: dict[str, dict[str, Any]] = {
    "test_elicitation": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "test_elicitation_sep1034_defaults": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
    "test_elicitation_sep1330_enums": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    },
}
PROMPTS: dict[str, dict[str, Any]] = {
    "test_simple_prompt": {"messages": [{"role": "user", "content": "This is a simple prompt for testing."}]},
    "test_prompt_with_arguments": {
        "arguments": [
            {"name": "arg1", "description": "First test argument", "required": True},
            {"name": "arg2", "description": "Second test argument", "required": True},
        ],
        "messages": [{"role": "user", "content": "Prompt with arguments: arg1='{{arg1}}', arg2='{{arg2}}'"}],
    },
    "test_prompt_with_embedded_resource": {
        "arguments": [{"name": "resourceUri", "description": "URI of the resource to embed", "required": True}],
        "messages": [
            {
                "role": "user",
                "content": {
                    "type": "resource",
                    "resource": {"uri": "{{resourceUri}}", "mimeType": "text/plain", "text": "Embedded content."},
                },
            },
            {"role": "user", "content": "Please process the embedded resource above."},
        ],
    },
    "test_prompt_with_image": {
        "messages": [
            {"role": "user", "content": {"type": "image", "data": PNG, "mimeType": "image/png"}},
            {"role": "user", "content": "Please analyze the image above."},
        ]
    },
}
# The suite's URIs of resources, with media type and content.
RESOURCES = {
    "test://static-text": ("text/plain", b"This is the content of the static text resource."),
    "test://static-binary": ("image/png", base64.b64decode(PNG)),
    "test://template/123/data": ("application/json", b'{"id":"123","templateTest":true}'),
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


def send(url: str, method: str, body: bytes) -> Any:
    request = urllib.request.Request(url, body, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=harness.TIMEOUT_S) as response:
        return json.loads(response.read() or b"null")


def register(venue: harness.Venue) -> dict[str, str]:
    """Registers what the suite calls. Returns the texts of the suite to replace."""
    api = f"{venue.url}/api/v1"
    replaced = {}

    def operation(name: str, step: dict[str, Any], members: dict[str, Any]) -> None:
        members = {"adapter": "orchestrator", "steps": [step], **members}
        metadata = {"name": name, "description": f"For the scenario of {name}", "operation": members}
        send(f"{api}/operations/{name}", "PUT", json.dumps(metadata).encode())
        replaced[f"`{name}`"] = f"`o_{name}`"

    echo = {"op": "test:echo", "input": {}}
    for name, (schema, output) in TOOLS.items():
        operation(name, echo, {"output": schema, "result": ["const", output]})
    error = {"op": "test:error", "input": {"message": ["const", "This tool intentionally returns an error"]}}
    operation("test_error_handling", error, {"result": ["const", None]})
    # An operation of the catalogue reports progress; it needs to be told for how long.
    replaced["name:`test_tool_with_progress`,arguments:{}"] = "name:`test_progress`,arguments:{totalItems:40,itemMs:25}"
    for name in QUESTIONS:
        about = f"For the scenario of {name}"
        metadata = {"name": name, "description": about, "operation": {"adapter": "worker", "queue": "questions"}}
        send(f"{api}/operations/{name}", "PUT", json.dumps(metadata).encode())
        replaced[f"name:`{name}`"] = f"name:`o_{name}`"
    for name, prompt in PROMPTS.items():
        metadata = {"name": name, "description": f"For the scenario of {name}", "prompt": prompt}
        send(f"{api}/assets", "POST", json.dumps(metadata).encode())
    with urllib.request.urlopen(f"{venue.url}/.well-known/did.json", timeout=harness.TIMEOUT_S) as response:
        did = json.loads(response.read())["id"]
    for uri, (media, content) in RESOURCES.items():
        metadata = {"name": uri, "content": {"contentType": media}}
        asset = send(f"{api}/assets", "POST", json.dumps(metadata).encode())
        send(f"{api}/assets/{asset}/content", "PUT", content)
        replaced[f"`{uri}`"] = f"`{did}/a/{asset.removeprefix('0x')}`"
    return replaced


def ask(venue: harness.Venue, stop: threading.Event) -> None:
    """A worker whose jobs ask their question and return the answer."""
    while not stop.is_set():
        claim = {"worker": "fixtures", "queues": ["questions"], "max": 1, "waitMs": 500}
        claimed = send(f"{venue.url}/worker/v1/claim", "POST", json.dumps(claim).encode())
        for job in claimed["jobs"]:
            if "message" in job:
                end: dict[str, Any] = {"output": job["message"]}
            else:
                fields = QUESTIONS[job["op"].removeprefix("o/")]
                message = (job["input"] or {}).get("message", "Please answer.")
                end = {"ask": {"message": message, "schema": {"type": "object", "properties": fields}}}
            body = json.dumps({"fence": job["fence"], **end}).encode()
            send(f"{venue.url}/worker/v1/jobs/{job['id']}/end", "POST", body)


def suite_with(replaced: dict[str, str]) -> pathlib.Path:
    """A copy of the suite with other names."""
    original = FOLDER / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    text = original.read_text()
    for old, new in replaced.items():
        if old not in text:
            raise SystemExit(f"the suite does not contain {old}")
        text = text.replace(old, new)
    copy = original.with_name("catena.js")
    copy.write_text(text)
    return copy


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--binary", type=pathlib.Path, required=True)
    binary: pathlib.Path = arguments.parse_args().binary
    if reason := install():
        print(f"the MCP conformance suite: SKIPPED, it cannot be installed: {reason}")
        return
    node = FOLDER / "node_modules" / ".bin" / "node"
    with harness.venue(binary) as venue:
        suite = suite_with(register(venue))
        command = [str(node), str(suite), "server", "--url", f"{venue.url}/mcp"]
        stop = threading.Event()
        worker = threading.Thread(target=ask, args=(venue, stop))
        worker.start()
        try:
            ended = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120)
        finally:
            stop.set()
            worker.join()
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
