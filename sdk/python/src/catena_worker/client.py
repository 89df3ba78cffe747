"""A small typed client of the grid API: invoke operations, wait for jobs, follow and control them, verify their histories.

`AsyncClient` is the implementation. `Client` has the same methods for code without an event loop; each runs to its end before it
returns.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from .chain import Chain
from .errors import JobFailed, Unreachable, VenueError, VerificationFailed
from .key import Key, key_in_environment
from .limits import FOLLOW_RETRY_S, HISTORY_PAGE, WAIT_S_MAX
from .run import ENDED
from .schema import decode, encode
from .sse import Parser
from .venue import error_of, timeouts, venue_auth, venue_headers, venue_url
from .verify import Report, Subjobs, Verifier

T = TypeVar("T")

SUBJOB_DEPTH_MAX = 8
"""Depth to which verification follows sub-jobs of sub-jobs; no venue nests deeper."""


@dataclass(frozen=True)
class Job:
    """A job as a venue shows it."""

    id: str
    status: str
    """One of the ten grid statuses."""
    output: Any
    error: str | None
    head: str | None
    """ID of the last record."""
    json: Mapping[str, Any]
    """Everything that the venue sent."""

    @classmethod
    def from_json(cls, job: Mapping[str, Any]) -> Job:
        return cls(job["id"], job["status"], job.get("output"), job.get("error"), job.get("head"), job)

    @property
    def is_ended(self) -> bool:
        return self.status in ENDED

    def result(self, returns: Any = Any) -> Any:
        """The output, as the type that `returns` names. Raises `JobFailed` if the job is not COMPLETE."""
        if self.status != "COMPLETE":
            raise JobFailed(self.id, self.status, self.error)
        return decode(self.output, returns)


@dataclass(frozen=True)
class Event:
    """A change of a job."""

    kind: str
    """`job-update` or `progress`."""
    index: int | None
    """Index of the record in the chain. `None` for progress."""
    data: Mapping[str, Any]

    @property
    def job(self) -> Job:
        """The job as of this record."""
        return Job.from_json(self.data)


class AsyncClient:
    """The grid API of a venue. `url` and `token` default to `CATENA_VENUE` and `CATENA_TOKEN`.

    Without a token, a `key` (default: the file that `CATENA_KEY` names) identifies the caller.
    """

    def __init__(self, url: str | None = None, *, token: str | None = None, key: Key | None = None) -> None:
        self.url = venue_url(url)
        auth = venue_auth(token, key or key_in_environment(), self.url)
        self._http = httpx.AsyncClient(base_url=self.url, headers=venue_headers(token), timeout=timeouts(), auth=auth)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def _send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, wait_s: float = 0
    ) -> httpx.Response:
        limits = timeouts(round(wait_s * 1000))
        try:
            if body is None:
                response = await self._http.request(method, path, headers=headers, timeout=limits)
            else:
                response = await self._http.request(method, path, json=body, headers=headers, timeout=limits)
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise Unreachable(f"the venue at {self.url} cannot be reached: {reason}") from error
        if response.status_code >= 400:
            raise error_of(response)
        return response

    # -- jobs

    async def invoke(
        self, operation: str, input: Any = None, *, idempotency_key: str | None = None, timeout_ms: int | None = None
    ) -> Job:
        """Creates a job. It may already have ended when this returns."""
        body: dict[str, Any] = {"operation": operation, "input": encode(input)}
        if timeout_ms is not None:
            body["timeoutMs"] = timeout_ms
        headers = {} if idempotency_key is None else {"idempotency-key": idempotency_key}
        return Job.from_json((await self._send("POST", "/api/v1/invoke", body, headers)).json())

    async def run(self, operation: str, input: Any = None, *, timeout: float | None = None, returns: Any = Any) -> Any:
        """Creates a job, waits for its end and returns its output. Raises `JobFailed` if it has none."""
        job = await self.invoke(operation, input)
        return (await self.wait(job.id, timeout=timeout)).result(returns)

    async def job(self, id: str) -> Job:
        return Job.from_json((await self._send("GET", _path(id))).json())

    async def wait(self, id: str, *, timeout: float | None = None) -> Job:
        """Waits until a job has ended, in whichever status. Raises `TimeoutError` after `timeout` seconds; the job continues."""
        end = None if timeout is None else time.monotonic() + timeout
        headers: dict[str, str] = {}
        while True:
            left = WAIT_S_MAX if end is None else end - time.monotonic()
            wait_s = max(0, min(WAIT_S_MAX, left))
            headers["prefer"] = f"wait={int(wait_s)}"
            response = await self._send("GET", _path(id), None, headers, wait_s)
            if response.status_code != 304:
                job = Job.from_json(response.json())
                if job.is_ended:
                    return job
                if "etag" in response.headers:
                    headers["if-none-match"] = response.headers["etag"]
            if left <= 0:
                raise TimeoutError(f"job {id} has not ended after {timeout} s")
            if wait_s < 1:  # The venue counts in whole seconds.
                await asyncio.sleep(min(0.05, wait_s))

    async def events(self, id: str, *, after: int | None = None, progress: bool = False) -> AsyncIterator[Event]:
        """Follows a job: its current record first, or every record after `after`, then each further one until it has ended.

        A stream that breaks is continued where it stopped.
        """
        path = _path(id, "sse") + ("?progress=1" if progress else "")
        while True:
            parser = Parser()
            headers = {"accept": "text/event-stream"}
            if after is not None:
                headers["last-event-id"] = str(after)
            try:
                async with self._http.stream("GET", path, headers=headers) as response:
                    if response.status_code == 204:
                        return
                    if response.status_code >= 400:
                        await response.aread()
                        raise error_of(response)
                    async for line in response.aiter_lines():
                        frame = parser.push_line(line)
                        if frame is None:
                            continue
                        index = int(frame.id) if frame.id is not None and frame.id.isdigit() else None
                        after = after if index is None else index
                        event = Event(frame.event, index, json.loads(frame.data))
                        yield event
                        if event.kind == "job-update" and event.job.is_ended:
                            return
            except VenueError as error:
                if not error.is_transient:
                    raise
            except httpx.TransportError:
                pass
            await asyncio.sleep(FOLLOW_RETRY_S if parser.retry_s is None else parser.retry_s)

    async def cancel(self, id: str, reason: str | None = None) -> Job:
        body = None if reason is None else {"reason": reason}
        return Job.from_json((await self._send("PUT", _path(id, "cancel"), body)).json())

    async def pause(self, id: str) -> Job:
        return Job.from_json((await self._send("PUT", _path(id, "pause"))).json())

    async def resume(self, id: str) -> Job:
        return Job.from_json((await self._send("PUT", _path(id, "resume"))).json())

    async def send(self, id: str, content: Any, *, message_id: str | None = None) -> None:
        """Sends a message to a job, such as the answer to a question."""
        body: dict[str, Any] = {"content": encode(content)}
        if message_id is not None:
            body["messageId"] = message_id
        await self._send("POST", _path(id), body)

    # -- histories

    async def history_page(self, id: str, start: int = 0, limit: int = HISTORY_PAGE) -> bytes:
        """One page of a history, exactly as the venue sent it."""
        return (await self._send("GET", f"{_path(id, 'history')}?from={start}&limit={limit}")).content

    async def verify(self, id: str, *, head: str | None = None) -> Report:
        """Fetches the history of a job and of its sub-jobs and verifies them here. Raises `VerificationFailed`."""
        _, report = await self._verify(id, head, None, SUBJOB_DEPTH_MAX)
        return report

    async def _verify(self, id: str, head: str | None, venue: str | None, depth: int) -> tuple[Chain, Report]:
        verifier = Verifier()
        start: int | None = 0
        while start is not None:
            before = verifier.count
            start = verifier.push_page(await self.history_page(id, start))
            if start is not None and verifier.count == before:
                raise VerificationFailed("incomplete", "a page of the history has no records", before)
        chain = verifier.finish(job=id, venue=venue, head=head)
        found = Subjobs()
        for subjob in verifier.subjobs():
            if subjob.is_remote or depth == 0:
                found.unavailable += 1
                continue
            try:
                child, report = await self._verify(subjob.job, None, chain.venue, depth - 1)
            except VenueError as error:
                if error.status not in (404, 410):
                    raise
                found.unavailable += 1
                continue
            except VerificationFailed as error:
                subjob_id = error.subjob or subjob.job
                raise VerificationFailed(error.code, error.reason, error.record, subjob_id) from None
            subjob.check(chain, child)
            found.add(report)
        return chain, verifier.report(found)


def _path(id: str, action: str = "") -> str:
    return f"/api/v1/jobs/{quote(id, safe='')}" + (f"/{action}" if action else "")


class Client:
    """The grid API of a venue for code without an event loop. The methods are those of `AsyncClient`."""

    def __init__(self, url: str | None = None, *, token: str | None = None, key: Key | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="catena-client", daemon=True)
        self._thread.start()
        self._client = AsyncClient(url, token=token, key=key)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, action: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(action, self._loop).result()

    def close(self) -> None:
        if self._thread.is_alive():
            self._do(self._client.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def invoke(
        self, operation: str, input: Any = None, *, idempotency_key: str | None = None, timeout_ms: int | None = None
    ) -> Job:
        return self._do(
            self._client.invoke(operation, input, idempotency_key=idempotency_key, timeout_ms=timeout_ms)
        )

    def run(self, operation: str, input: Any = None, *, timeout: float | None = None, returns: Any = Any) -> Any:
        return self._do(self._client.run(operation, input, timeout=timeout, returns=returns))

    def job(self, id: str) -> Job:
        return self._do(self._client.job(id))

    def wait(self, id: str, *, timeout: float | None = None) -> Job:
        return self._do(self._client.wait(id, timeout=timeout))

    def events(self, id: str, *, after: int | None = None, progress: bool = False) -> Iterator[Event]:
        events = self._client.events(id, after=after, progress=progress)
        try:
            while True:
                try:
                    yield self._do(_next(events))
                except StopAsyncIteration:
                    return
        finally:
            self._do(_close(events))

    def cancel(self, id: str, reason: str | None = None) -> Job:
        return self._do(self._client.cancel(id, reason))

    def pause(self, id: str) -> Job:
        return self._do(self._client.pause(id))

    def resume(self, id: str) -> Job:
        return self._do(self._client.resume(id))

    def send(self, id: str, content: Any, *, message_id: str | None = None) -> None:
        self._do(self._client.send(id, content, message_id=message_id))

    def history_page(self, id: str, start: int = 0, limit: int = HISTORY_PAGE) -> bytes:
        return self._do(self._client.history_page(id, start, limit))

    def verify(self, id: str, *, head: str | None = None) -> Report:
        return self._do(self._client.verify(id, head=head))


async def _next(events: AsyncIterator[Event]) -> Event:
    return await events.__anext__()


async def _close(events: Any) -> None:
    async with aclosing(events):
        pass
