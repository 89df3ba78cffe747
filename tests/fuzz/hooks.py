"""Makes half of the generated requests refer to things that exist, so that fuzzing gets past "not found".

Which half, and at what, follows from the drawn value alone: the same seed makes the same requests.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import Any

import schemathesis

KNOWN: dict[str, list[str]] = json.loads(os.environ["CATENA_FUZZ_KNOWN"])
WAIT_MS_MAX = 50


def pick(drawn: Any, known: list[str]) -> str | None:
    """One of the known things, or `None` in half of all cases."""
    number = zlib.crc32(repr(drawn).encode(errors="replace"))
    return known[number // 2 % len(known)] if number % 2 else None


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    is_job = "/jobs/" in context.operation.path
    for name, value in (path_parameters or {}).items():
        known = KNOWN["jobs" if is_job else name if name in KNOWN else "refs"]
        chosen = pick(value, known)
        if chosen is not None:
            path_parameters[name] = chosen
    return path_parameters


@schemathesis.hook
def map_query(context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    # A wait may legitimately last two minutes.
    if query and "wait" in query and str(query["wait"]).lower() not in ("false", "0"):
        query["wait"] = str(WAIT_MS_MAX) if str(query["wait"]).lower() in ("true", "") else query["wait"]
        if str(query["wait"]).isascii() and str(query["wait"]).isdigit():
            query["wait"] = str(min(int(query["wait"]), WAIT_MS_MAX))
    return query


def map_message(body: dict[str, Any]) -> dict[str, Any]:
    """An MCP message; half of the time a known method with parameters that refer to existing things."""
    method = pick(body, KNOWN["methods"])
    if method is None:
        return body
    params = body.get("params") if isinstance(body.get("params"), dict) else {}
    if pick([body, "name"], KNOWN["tools"]):
        params["name"] = pick([body, "name"], KNOWN["tools"])
    if pick([body, "task"], KNOWN["jobs"]):
        params["taskId"] = pick([body, "task"], KNOWN["jobs"])
    return {**body, "method": method, "params": params}


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    if isinstance(body, dict) and context.operation.path == "/mcp":
        return map_message(body)
    if not isinstance(body, dict) or context.operation.path not in ("/api/v1/invoke", "/api/v1/run"):
        return body
    if isinstance(body.get("wait"), int) and body["wait"] > WAIT_MS_MAX or body.get("wait") is True:
        body["wait"] = WAIT_MS_MAX
    is_run = context.operation.path == "/api/v1/run"
    chosen = pick(body, KNOWN["operations"] + ([] if is_run else KNOWN["interactive"]))
    if chosen is not None and isinstance(body.get("operation"), str):
        body["operation"] = chosen
    return body
