"""Requests to a venue: one connection pool, errors as exceptions, repetition where it is safe."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from .errors import Fenced, Unreachable, VenueError
from .key import Key, KeyAuth
from .limits import BACKOFF_MAX_S, BACKOFF_MIN_S, CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S
from .run import CallResult, Claim

log = logging.getLogger("catena_worker")

DEFAULT_URL = "http://127.0.0.1:8787"


def venue_url(url: str | None) -> str:
    """The given URL, else `CATENA_VENUE`, else the default address on this host."""
    return (url or os.environ.get("CATENA_VENUE") or DEFAULT_URL).rstrip("/")


def venue_headers(token: str | None) -> dict[str, str]:
    """The headers for a token, else for `CATENA_TOKEN`, else for anonymous access."""
    token = token or os.environ.get("CATENA_TOKEN")
    return {"authorization": f"Bearer {token}"} if token else {}


def venue_auth(token: str | None, key: Key | None, url: str) -> KeyAuth | None:
    """Authentication with a key, unless there is a token."""
    return KeyAuth(key, url) if key is not None and not venue_headers(token) else None


def timeouts(wait_ms: int = 0) -> httpx.Timeout:
    return httpx.Timeout(REQUEST_TIMEOUT_S + wait_ms / 1000, connect=CONNECT_TIMEOUT_S)


def error_of(response: httpx.Response) -> VenueError:
    """The error that a response with a status of 400 or more stands for."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        body = {"error": f"HTTP status {response.status_code} from {response.url.path}"}
    kind = Fenced if body.get("code") == "fenced" else VenueError
    return kind(response.status_code, body)


def backoff(attempt: int) -> float:
    """The wait before a repetition, in seconds: doubling, bounded, and different for each worker."""
    longest: float = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2.0 ** min(attempt, 10))
    return longest * random.uniform(0.5, 1.0)


class Venue:
    """The worker API of a venue."""

    def __init__(self, url: str | None, token: str | None, worker: str, key: Key | None = None) -> None:
        self.url = venue_url(url)
        self.worker = worker
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        auth = venue_auth(token, key, self.url)
        self._http = httpx.AsyncClient(base_url=self.url, headers=venue_headers(token), limits=limits, auth=auth)

    async def close(self) -> None:
        await self._http.aclose()

    async def request(self, method: str, path: str, body: Mapping[str, Any], wait_ms: int = 0) -> dict[str, Any]:
        """Sends one request. Raises `VenueError` or `Unreachable`."""
        try:
            response = await self._http.request(method, path, json=body, timeout=timeouts(wait_ms))
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise Unreachable(f"the venue at {self.url} cannot be reached: {reason}") from error
        if response.status_code >= 400:
            raise error_of(response)
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Unreachable(f"{path} at {self.url} answered with something other than a JSON object")
        return answer

    async def repeat(self, method: str, path: str, body: Mapping[str, Any], wait_ms: int = 0) -> dict[str, Any]:
        """Sends a request that is safe to repeat until the venue answers it."""
        attempt = 0
        while True:
            try:
                return await self.request(method, path, body, wait_ms)
            except (Unreachable, VenueError) as error:
                if isinstance(error, VenueError) and not error.is_transient:
                    raise
                log.warning("%s; repeating the request", error)
            await asyncio.sleep(backoff(attempt))
            attempt += 1

    async def register(self, name: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
        return await self.request("PUT", f"/api/v1/operations/{quote(name, safe='')}", metadata)

    async def claim(self, queues: list[str], max: int, wait_ms: int, done: list[dict[str, Any]]) -> dict[str, Any]:
        body: dict[str, Any] = {"worker": self.worker, "queues": queues, "max": max, "waitMs": wait_ms}
        if done:
            body["done"] = done
        return await self.request("POST", "/worker/v1/claim", body, wait_ms)

    async def beat(self, jobs: list[dict[str, Any]], wait_ms: int) -> dict[str, Any]:
        body = {"worker": self.worker, "waitMs": wait_ms, "jobs": jobs}
        return await self.request("POST", "/worker/v1/beat", body, wait_ms)

    async def end(self, claim: Claim, end: Mapping[str, Any]) -> dict[str, Any]:
        return await self.repeat("POST", _job_path(claim, "end"), {"fence": claim.fence, **end})

    async def step(self, claim: Claim, key: str, input: Any, output: Any) -> Any:
        body = {"fence": claim.fence, "key": key, "output": output}
        if input is not None:
            body["input"] = input
        answer = await self.repeat("POST", _job_path(claim, "step"), body)
        return answer.get("output", output)

    async def call(self, claim: Claim, key: str, operation: str, input: Any, wait_ms: int) -> CallResult:
        body = {"fence": claim.fence, "key": key, "operation": operation, "input": input, "waitMs": wait_ms}
        answer = await self.repeat("POST", _job_path(claim, "call"), body, wait_ms)
        return CallResult(answer["job"], answer["status"], answer.get("output"), answer.get("error"))


def _job_path(claim: Claim, action: str) -> str:
    return f"/worker/v1/jobs/{quote(claim.id, safe='')}/{action}"
