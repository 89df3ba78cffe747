"""What a handler can do for its job: `Context` in async functions, `SyncContext` in plain ones."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import datetime, timezone
from typing import Any, TypeVar, get_type_hints, overload

from .errors import Cancelled
from .run import Run, output_of
from .schema import Schema, decode

T = TypeVar("T")


def _hint_of(work: Callable[..., Any], returns: Any) -> Any:
    """The type of a step's output: what was given, else the return type hint of the function."""
    if returns is not None:
        return returns
    try:
        return get_type_hints(work, include_extras=True).get("return", Any)
    except (NameError, TypeError):
        return Any


def _wait_ms(wait: float | None) -> int | None:
    return None if wait is None else round(wait * 1000)


class _Base:
    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def job(self) -> str:
        """The job's ID."""
        return self._run.claim.id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._run.claim.attempt

    @property
    def operation(self) -> str:
        """Asset ID of the definition that is run."""
        return self._run.claim.operation

    @property
    def op(self) -> str:
        """The reference by which the operation was invoked."""
        return self._run.claim.op

    @property
    def input(self) -> Any:
        """The input as JSON."""
        return self._run.claim.input

    @property
    def idempotency_key(self) -> str:
        """Send this to services that recognise repeated requests."""
        return self._run.claim.idempotency_key

    @property
    def secrets(self) -> Mapping[str, str]:
        """The secrets of the caller that the operation declares, by name. The venue removes their values from what the job reports."""
        return self._run.claim.secrets

    @property
    def deadline(self) -> datetime | None:
        """When the job times out. `None` if it has no time limit."""
        deadline = self._run.claim.deadline
        return None if deadline is None else datetime.fromtimestamp(deadline / 1000, timezone.utc)

    @property
    def is_paused(self) -> bool:
        """Whether the job is paused. Steps, calls and questions wait until it is resumed; a long computation can look here."""
        return self._run.is_paused


class Context(_Base):
    """The job of an async handler. Cancellation arrives as `asyncio.CancelledError`."""

    @overload
    async def step(self, key: str, work: Callable[[], Awaitable[T]], *, input: Any = None, returns: None = None) -> T: ...
    @overload
    async def step(self, key: str, work: Callable[[], T], *, input: Any = None, returns: None = None) -> T: ...
    @overload
    async def step(self, key: str, work: Callable[[], Any], *, input: Any = None, returns: type[T]) -> T: ...
    async def step(self, key: str, work: Callable[[], Any], *, input: Any = None, returns: Any = None) -> Any:
        """Runs `work` once per job and returns its output; later runs get the recorded one.

        The output must have a JSON form. It is returned as the type that `returns`, or the return type hint of `work`, names.
        `input` is recorded with the step, for readers of the chain.
        """
        return await self._run.step(key, work, input, _hint_of(work, returns))

    async def call(
        self, key: str, operation: str, input: Any = None, *, wait: float | None = None, returns: Any = Any
    ) -> Any:
        """Invokes an operation as a sub-job and returns its output. Raises `CallFailed` if it ends in another way.

        If it has not ended after `wait` seconds, the job is given back and the handler starts again when it has.
        """
        return await self._run.call(key, operation, input, _wait_ms(wait), returns)

    async def calls(
        self, calls: Mapping[str, tuple[str, Any]], *, wait: float | None = None, returns: Any = Any
    ) -> dict[str, Any]:
        """Invokes several operations at once: `{key: (operation, input)}` gives `{key: output}`."""
        requests = [(key, operation, input) for key, (operation, input) in calls.items()]
        results = await self._run.calls(requests, _wait_ms(wait))
        return {key: output_of(key, result, returns) for key, result in zip(calls, results)}

    async def ask(self, key: str, message: str, *, schema: Schema | None = None, returns: Any = Any) -> Any:
        """Asks a person and returns the answer. Until it arrives, the job waits without occupying this worker.

        `returns` is the type of the answer; the person is asked again if the answer does not have it.
        """
        return await self._run.ask(key, message, schema, returns)

    def progress(self, done: int | None = None, total: int | None = None, **stats: Any) -> None:
        """Reports progress: items done and in total, and figures of your own (`bytesProcessed`, `bytesTotal`)."""
        self._run.report(done, total, stats or None)

    def log(self, text: str) -> None:
        """Writes lines to the job's log."""
        self._run.write_log(text)


class SyncContext(_Base):
    """The job of a plain handler, which runs in a thread. Every method raises `Cancelled` once the job was stopped."""

    def __init__(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(run)
        self._loop = loop
        self._cancelled = threading.Event()
        run.on_stop(self._cancelled.set)

    @property
    def cancelled(self) -> threading.Event:
        """Set once the job was stopped. Code that waits can wait for this, too."""
        return self._cancelled

    def check(self) -> None:
        """Raises `Cancelled` if the job was stopped. Call it in long computations."""
        if self._cancelled.is_set():
            raise Cancelled("the job was stopped")

    def _wait(self, action: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(action, self._loop).result()
        except concurrent.futures.CancelledError:
            raise Cancelled("the job was stopped") from None

    @overload
    def step(self, key: str, work: Callable[[], T], *, input: Any = None, returns: None = None) -> T: ...
    @overload
    def step(self, key: str, work: Callable[[], Any], *, input: Any = None, returns: type[T]) -> T: ...
    def step(self, key: str, work: Callable[[], Any], *, input: Any = None, returns: Any = None) -> Any:
        """Runs `work` once per job and returns its output; later runs get the recorded one. See `Context.step`."""
        is_known, output = self._wait(self._run.find_step(key))
        if not is_known:
            try:
                value = work()
            except BaseException:
                self._loop.call_soon_threadsafe(self._run.abandon_step)
                raise
            output = self._wait(self._run.record_step(key, input, value))
        return decode(output, _hint_of(work, returns))

    def call(
        self, key: str, operation: str, input: Any = None, *, wait: float | None = None, returns: Any = Any
    ) -> Any:
        """Invokes an operation as a sub-job and returns its output. See `Context.call`."""
        return self._wait(self._run.call(key, operation, input, _wait_ms(wait), returns))

    def calls(
        self, calls: Mapping[str, tuple[str, Any]], *, wait: float | None = None, returns: Any = Any
    ) -> dict[str, Any]:
        """Invokes several operations at once. See `Context.calls`."""
        requests = [(key, operation, input) for key, (operation, input) in calls.items()]
        results = self._wait(self._run.calls(requests, _wait_ms(wait)))
        return {key: output_of(key, result, returns) for key, result in zip(calls, results)}

    def ask(self, key: str, message: str, *, schema: Schema | None = None, returns: Any = Any) -> Any:
        """Asks a person and returns the answer. See `Context.ask`."""
        return self._wait(self._run.ask(key, message, schema, returns))

    def progress(self, done: int | None = None, total: int | None = None, **stats: Any) -> None:
        """Reports progress. See `Context.progress`."""
        self.check()
        self._loop.call_soon_threadsafe(self._run.report, done, total, stats or None)

    def log(self, text: str) -> None:
        """Writes lines to the job's log."""
        self.check()
        self._loop.call_soon_threadsafe(self._run.write_log, text)
