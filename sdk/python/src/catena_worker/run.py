"""One run of a claimed job: memoised steps, calls, questions, pause and stop.

A handler is run from the top each time its job is claimed. Whatever it did through `Run` the time before is returned from memory
instead of being done again, so a handler that does everything with effects in steps and calls continues where it stopped.

`Run` knows no transport: it talks to a `Link`, which is the venue in a worker and a fake in the test helper. All of it runs on the
event loop; `SyncContext` reaches it from other threads.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from .errors import CallFailed, Failure, Fenced, Retry
from .limits import ERROR_CHARS_MAX, LOG_LINE_CHARS_MAX, LOG_LINES_MAX
from .schema import Mismatch, Schema, decode, encode, schema_of

T = TypeVar("T")

ENDED = frozenset({"COMPLETE", "FAILED", "CANCELLED", "REJECTED", "TIMEOUT"})
"""The statuses of a job that has ended."""

ASKED = "?"
"""Suffix of the step by which a run records that it is going to ask."""


@dataclass(frozen=True)
class Claim:
    """A job as the venue offers it."""

    id: str
    fence: int
    attempt: int
    operation: str
    """Asset ID of the definition."""
    op: str
    """The reference by which the operation was invoked."""
    input: Any
    steps: dict[str, Any] = field(default_factory=dict)
    """Outputs of the steps that earlier runs recorded, by key."""
    omitted: frozenset[str] = frozenset()
    """Keys of recorded steps whose outputs were too large to be sent along."""
    message: Any = None
    """The answer of a person to the last question. `None` if there is none."""
    deadline: int | None = None
    """Unix time in ms at which the job times out."""
    idempotency_key: str = ""
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    """Secrets of the caller that the operation declares, by name."""

    @classmethod
    def from_json(cls, job: dict[str, Any]) -> Claim:
        return cls(
            id=job["id"],
            fence=job["fence"],
            attempt=job.get("attempt", 1),
            operation=job.get("operation") or "",
            op=job.get("op") or "",
            input=job.get("input"),
            steps={step["key"]: step["output"] for step in job.get("steps") or () if "output" in step},
            omitted=frozenset(step["key"] for step in job.get("steps") or () if step.get("omitted")),
            message=job.get("message"),
            deadline=job.get("deadline"),
            idempotency_key=job.get("idempotencyKey") or job["id"],
            secrets=dict(job.get("secrets") or {}),
        )


# ----------------------------------------------------------------------------------------------------------- outcomes


@dataclass(frozen=True)
class Completed:
    output: Any

    def end(self) -> dict[str, Any]:
        return {"output": self.output}


@dataclass(frozen=True)
class Failed:
    error: str
    code: str | None = None
    retry: str | int = "may"
    """`never`, `may`, or the milliseconds until the next attempt."""

    def end(self) -> dict[str, Any]:
        code = {} if self.code is None else {"code": self.code}
        return {"error": self.error[:ERROR_CHARS_MAX], **code, "retry": self.retry}


@dataclass(frozen=True)
class Asked:
    message: str
    schema: Schema | None = None

    def end(self) -> dict[str, Any]:
        schema = {} if self.schema is None else {"schema": self.schema}
        return {"ask": {"message": self.message, **schema}}


@dataclass(frozen=True)
class Released:
    """The job is offered again when the calls with these keys have ended; without keys, immediately."""

    keys: tuple[str, ...]

    def end(self) -> dict[str, Any]:
        return {"awaiting": list(self.keys)}


@dataclass(frozen=True)
class Dropped:
    """Nothing is reported: the job no longer belongs to this run."""


Outcome = Completed | Failed | Asked | Released | Dropped


class Unwind(BaseException):
    """Ends the handler without ending the job. It is not an `Exception`, so that handlers do not catch it by accident."""

    def __init__(self, outcome: Asked | Released) -> None:
        self.outcome = outcome
        super().__init__("the handler continues when the job is offered again; let this exception pass")


# ---------------------------------------------------------------------------------------------------------------- run


@dataclass(frozen=True)
class CallResult:
    job: str
    status: str
    output: Any = None
    error: str | None = None


class Link(Protocol):
    """What a run needs from its venue. Every method may raise `Fenced`."""

    async def record_step(self, claim: Claim, key: str, input: Any, output: Any) -> Any:
        """Records the output of a step. Returns what is recorded: the first output under a key counts."""
        ...

    async def call(self, claim: Claim, key: str, operation: str, input: Any, wait_ms: int) -> CallResult: ...

    def call_wait_ms(self) -> int:
        """How long a call may wait for its result."""
        ...


class Run:
    """The state of one run. It must only be used on the event loop."""

    def __init__(self, claim: Claim, link: Link) -> None:
        self.claim = claim
        self._link = link
        self._memo = dict(claim.steps)
        self._message = claim.message
        self._used: set[str] = set()
        self._steps_running = 0
        self._no_steps = asyncio.Event()
        self._no_steps.set()
        self._go = asyncio.Event()
        self._go.set()
        self._stopped = asyncio.Event()
        self._on_stop: Callable[[], object] | None = None
        self.is_handed_back = False
        self.progress: dict[str, Any] | None = None
        """The last report that has not been sent."""
        self.log: list[str] = []
        self.log_dropped = 0
        self.no_reports_on_way = asyncio.Event()
        """Set unless the venue has not answered yet to a beat with reports of this job."""
        self.no_reports_on_way.set()

    # -- signals

    @property
    def is_paused(self) -> bool:
        return not self._go.is_set()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def on_stop(self, action: Callable[[], object]) -> None:
        """Sets what interrupts the handler."""
        self._on_stop = action
        if self.is_stopped:
            action()

    def pause(self) -> None:
        self._go.clear()

    def resume(self) -> None:
        self._go.set()

    def stop(self) -> None:
        """The job no longer belongs to this run: its handler is interrupted and its outcome is dropped."""
        if self.is_stopped:
            return
        self._stopped.set()
        self._go.set()
        if self._on_stop is not None:
            self._on_stop()

    def hand_back(self) -> None:
        """Interrupts the handler and gives the job back to the queue."""
        if not self.is_stopped:
            self.is_handed_back = True
            self.stop()

    async def ready(self) -> None:
        """Waits while the job is paused. Raises `CancelledError` if it has been stopped."""
        await self._go.wait()
        if self.is_stopped:
            raise asyncio.CancelledError("the job was stopped")

    async def _ask_venue(self, request: Coroutine[Any, Any, T]) -> T:
        """Sends a request. Ends at once if the job is stopped meanwhile."""
        task = asyncio.ensure_future(request)
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise asyncio.CancelledError("the job was stopped")
            return task.result()
        except Fenced:
            self.stop()
            raise asyncio.CancelledError("the job belongs to another run") from None
        finally:
            for waiter in (task, stopped):
                if not waiter.done():
                    waiter.cancel()

    # -- steps

    def _claim_key(self, key: str) -> None:
        if not isinstance(key, str) or not key:
            raise ValueError("a key must be a text that is not empty")
        if key in self._used:
            raise ValueError(f"the key {key!r} is used twice in one run: every step, call and question needs its own")
        self._used.add(key)

    async def find_step(self, key: str) -> tuple[bool, Any]:
        """Whether the step was recorded before, and its output. If not, `record_step` or `abandon_step` must follow."""
        self._claim_key(key)
        await self.ready()
        if key in self.claim.omitted and key not in self._memo:
            # The venue returns what it recorded and ignores what is sent.
            self._memo[key] = await self._ask_venue(self._link.record_step(self.claim, key, None, None))
        if key in self._memo:
            return True, self._memo[key]
        self._steps_running += 1
        self._no_steps.clear()
        return False, None

    async def record_step(self, key: str, input: Any, output: Any) -> Any:
        """Records the output of a step and returns it as later runs will get it."""
        try:
            plain = _plain(output)
            if self.is_stopped:
                raise asyncio.CancelledError("the job was stopped")
            recorded = await self._ask_venue(self._link.record_step(self.claim, key, _plain(input), plain))
            if self.is_stopped:
                raise asyncio.CancelledError("the job was stopped")
            self._memo[key] = recorded
            return recorded
        finally:
            self.abandon_step()

    def abandon_step(self) -> None:
        self._steps_running -= 1
        if self._steps_running == 0:
            self._no_steps.set()

    async def step(self, key: str, work: Callable[[], Awaitable[T] | T], input: Any, hint: Any) -> Any:
        is_known, output = await self.find_step(key)
        if not is_known:
            try:
                made = work()
                value = await made if isinstance(made, Awaitable) else made
            except BaseException:
                self.abandon_step()
                raise
            output = await self.record_step(key, input, value)
        return decode(output, hint)

    # -- calls

    async def calls(self, calls: Iterable[tuple[str, str, Any]], wait_ms: int | None) -> list[CallResult]:
        """Calls operations and returns their results. Gives the job back if one has not ended after the wait."""
        requests = list(calls)
        for key, _, _ in requests:
            self._claim_key(key)
        await self.ready()
        wait = self._link.call_wait_ms() if wait_ms is None else wait_ms
        link, claim = self._link, self.claim

        async def send() -> list[CallResult]:
            sent = (link.call(claim, key, operation, _plain(input), wait) for key, operation, input in requests)
            return list(await asyncio.gather(*sent))

        results = await self._ask_venue(send())
        waiting = tuple(key for (key, _, _), result in zip(requests, results) if result.status not in ENDED)
        if waiting:
            # Steps that run at the same time would be repeated if the job were given back before they are recorded.
            await self._no_steps.wait()
            await self.ready()
            raise Unwind(Released(waiting))
        return results

    async def call(self, key: str, operation: str, input: Any, wait_ms: int | None, hint: Any) -> Any:
        (result,) = await self.calls([(key, operation, input)], wait_ms)
        return output_of(key, result, hint)

    # -- people

    async def ask(self, key: str, message: str, schema: Schema | None, hint: Any) -> Any:
        """Asks a person. The first run ends with the question; the run that follows the answer records it."""
        is_known, answer = await self.find_step(key)
        if is_known:
            return decode(answer, hint)
        self.abandon_step()
        schema = schema if schema is not None or hint is Any else schema_of(hint)
        if key + ASKED in self._memo and self._message is not None:
            answer, self._message = self._message, None
            try:
                decoded = decode(answer, hint)
            except Mismatch as fault:
                raise Unwind(Asked(f"{message} (the last answer was not valid: {fault})", schema)) from None
            self._steps_running += 1
            self._no_steps.clear()
            await self.record_step(key, None, answer)
            return decoded
        if key + ASKED not in self._memo:
            # An answer that a job carries may belong to an earlier question; this step tells them apart.
            self._steps_running += 1
            self._no_steps.clear()
            await self.record_step(key + ASKED, None, message)
        await self._no_steps.wait()
        raise Unwind(Asked(message, schema))

    # -- reports

    def report(self, done: int | None, total: int | None, stats: dict[str, Any] | None) -> None:
        members = {"processedItems": done, "totalItems": total, "outputStats": stats}
        self.progress = {name: value for name, value in members.items() if value is not None}

    def write_log(self, text: str) -> None:
        for line in text.splitlines():
            if len(self.log) >= LOG_LINES_MAX:
                self.log_dropped += 1
            else:
                self.log.append(line[:LOG_LINE_CHARS_MAX])

    def has_reports(self) -> bool:
        return self.progress is not None or bool(self.log)

    def take_reports(self) -> dict[str, Any]:
        """What the next beat has to send. It is on its way until `confirm_reports` or `restore_reports` is called."""
        reports: dict[str, Any] = {}
        if self.progress is not None:
            reports["progress"], self.progress = self.progress, None
        if self.log:
            dropped = [f"({self.log_dropped} lines were dropped)"] if self.log_dropped else []
            reports["log"], self.log, self.log_dropped = "\n".join(self.log + dropped), [], 0
        if reports:
            self.no_reports_on_way.clear()
        return reports

    def confirm_reports(self) -> None:
        """The venue has what was taken."""
        self.no_reports_on_way.set()

    def restore_reports(self, reports: dict[str, Any]) -> None:
        """Takes back what could not be sent."""
        self.no_reports_on_way.set()
        if self.progress is None:
            self.progress = reports.get("progress")
        earlier = reports["log"].split("\n") if "log" in reports else []
        self.log_dropped += max(0, len(earlier) + len(self.log) - LOG_LINES_MAX)
        self.log = (earlier + self.log)[:LOG_LINES_MAX]


def output_of(key: str, result: CallResult, hint: Any) -> Any:
    if result.status != "COMPLETE":
        raise CallFailed(key, result.job, result.status, result.error)
    return decode(result.output, hint)


def _plain(value: Any) -> Any:
    """The value as it is after a round trip through JSON, so that a first run and a repeated one see the same."""
    return json.loads(json.dumps(encode(value)))


def outcome_of(run: Run, error: BaseException) -> Outcome:
    """How a job ends whose handler raised this."""
    unwind = list(_unwinds(error))
    if run.is_stopped:
        return Released(()) if run.is_handed_back else Dropped()
    asked = next((found.outcome for found in unwind if isinstance(found.outcome, Asked)), None)
    if asked is not None:
        return asked
    if unwind:
        keys = [key for found in unwind if isinstance(found.outcome, Released) for key in found.outcome.keys]
        return Released(tuple(dict.fromkeys(keys)))
    if isinstance(error, Failure):
        return Failed(str(error), error.code, "never")
    if isinstance(error, Retry):
        return Failed(str(error), error.code, "may" if error.after_ms is None else error.after_ms)
    if isinstance(error, asyncio.CancelledError):
        return Failed("the handler cancelled itself")
    return Failed(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def _unwinds(error: BaseException) -> Iterable[Unwind]:
    """The signals inside an exception, which may be a group (`asyncio.TaskGroup`)."""
    if isinstance(error, Unwind):
        yield error
    for inner in getattr(error, "exceptions", ()):
        yield from _unwinds(inner)
