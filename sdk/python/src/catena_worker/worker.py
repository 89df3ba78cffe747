"""A worker: claims jobs from queues, runs their handlers, and reports how they end.

Three loops share one event loop. The claim loop takes as many jobs as there are free slots and hands in results with the same
request. The beat loop renews the lease for all running jobs at once, sends their progress, and receives pause and stop. Each job
runs in a task of its own. A venue that cannot be reached disturbs nothing: requests are repeated until it answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, overload

from .errors import CatenaError, Unreachable, VenueError
from .execute import execute
from .key import Key, key_in_environment
from .limits import (
    BEAT_INTERVAL_MIN_S,
    BEAT_WAIT_MS,
    CALL_WAIT_BUSY_MS,
    CALL_WAIT_MS,
    CLAIM_JOBS_MAX,
    CLAIM_QUEUES_MAX,
    CLAIM_WAIT_MS,
    DONE_BATCH_MAX,
    DONE_BYTES_MAX,
    GRACE_S,
    IDLE_BEAT_S,
    PARALLEL_DEFAULT,
)
from .operation import Limit, Operation, Options, Rate, Recovery, RetryPolicy, define
from .run import CallResult, Claim, Dropped, Failed, Outcome, Released, Run
from .venue import Venue, backoff

log = logging.getLogger("catena_worker")

F = TypeVar("F", bound=Callable[..., Any])


class Worker:
    """Runs functions as jobs of a venue.

    `url` and `token` default to `CATENA_VENUE` and `CATENA_TOKEN`. `name` identifies this process; the lease belongs to it, so
    two processes must never share one. `parallel` is the number of jobs at once. With `register=False` the operations are not
    registered at the start, which a worker token may not do.

    A worker with a `key` (default: the file that `CATENA_KEY` names) signs how its jobs end. Without a token it also identifies itself
    with the key. With one, the token's subject must be the DID of the key, because a venue refuses signatures of others.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        name: str | None = None,
        parallel: int = PARALLEL_DEFAULT,
        grace: float = GRACE_S,
        register: bool = True,
        key: Key | None = None,
    ) -> None:
        if parallel < 1:
            raise ValueError("`parallel` must be at least 1")
        self.url = url
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.parallel = parallel
        self.grace = grace
        self.operations: dict[str, Operation] = {}
        self.key = key or key_in_environment()
        self._token = token
        self._registers = register
        self._by_asset: dict[str, Operation] = {}
        self._session: _Session | None = None
        self._stop_early = False

    # -- definition

    @overload
    def operation(self, function: F, /) -> F: ...
    @overload
    def operation(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        description: str | None = None,
        timeout_ms: int | None = None,
        retry: RetryPolicy | None = None,
        idempotent: bool | None = None,
        recovery: Recovery | None = None,
        priority: int | None = None,
        limit: Limit | None = None,
        rate: Rate | None = None,
        secrets: Sequence[str] | None = None,
    ) -> Callable[[F], F]: ...
    def operation(self, *functions: Any, **options: Any) -> Any:
        """Decorator: the function becomes the handler of `o/<name>`. The queue has the operation's name unless it is given."""

        name = options.pop("name", None)
        queue = options.pop("queue", None)

        def decorate(function: F) -> F:
            self.add(define(function, name=name, queue=queue, options=Options(**options)))
            return function

        return decorate(*functions) if functions else decorate

    def add(self, operation: Operation) -> None:
        """Adds an operation made by `define`."""
        if operation.name in self.operations:
            raise ValueError(f"there already is an operation {operation.name!r}")
        self.operations[operation.name] = operation
        self._by_asset[operation.asset_id] = operation

    @property
    def queues(self) -> list[str]:
        return sorted({operation.queue for operation in self.operations.values()})

    def operation_for(self, claim: Claim) -> Operation | None:
        """The operation of a claimed job: by the ID of its definition, then by name, then the only one there is."""
        found = self._by_asset.get(claim.operation.removeprefix("0x"))
        if found is None:
            found = self.operations.get(_name_in(claim.op))
        if found is None and len(self.operations) == 1:
            (found,) = self.operations.values()
        return found

    # -- running

    def run(self) -> None:
        """Runs until SIGTERM or SIGINT, then drains: running jobs may end, and nothing new is claimed."""
        asyncio.run(self.serve())

    async def serve(self, started: Callable[[], object] | None = None) -> None:
        """Runs until `stop` is called or a signal arrives. `started` is called before the first claim."""
        if not self.operations:
            raise CatenaError("the worker has no operations")
        if len(self.queues) > CLAIM_QUEUES_MAX:
            reason = f"a worker claims from at most {CLAIM_QUEUES_MAX} queues, not {len(self.queues)}"
            raise CatenaError(f"{reason}: give several operations the same `queue`")
        venue = Venue(self.url, self._token, self.name, self.key)
        try:
            if self._registers:
                await self._register(venue)
            session = self._session = _Session(self, venue)
            if self._stop_early:
                session.drain()
            with _signals(session):
                if started is not None:
                    started()
                await session.run()
        finally:
            self._session = None
            self._stop_early = False
            await venue.close()

    def stop(self) -> None:
        """Starts to drain. It must be called on the event loop that runs `serve`; from another thread, send SIGTERM."""
        if self._session is None:
            self._stop_early = True
        else:
            self._session.drain()

    async def register(self) -> dict[str, str]:
        """Registers the operations and returns their asset IDs by name. It needs the owner's credentials."""
        venue = Venue(self.url, self._token, self.name, self.key)
        try:
            return await self._register(venue)
        finally:
            await venue.close()

    async def _register(self, venue: Venue) -> dict[str, str]:
        ids: dict[str, str] = {}
        for operation in self.operations.values():
            answer = await _until_reachable(lambda: venue.register(operation.name, operation.metadata))
            asset = ids[operation.name] = str(answer["id"]).removeprefix("0x")
            self._by_asset[asset] = operation
            log.info("o/%s is version %s", operation.name, answer.get("version"))
        return ids


def _name_in(op: str) -> str:
    """The name in a reference such as `o/resize`, `o/resize@3` or `did:key:…/o/resize`."""
    return op.rpartition("o/")[2].partition("@")[0]


async def _until_reachable(request: Callable[[], Any]) -> Any:
    attempt = 0
    while True:
        try:
            return await request()
        except (Unreachable, VenueError) as error:
            if isinstance(error, VenueError) and not error.is_transient:
                raise
            log.warning("%s; trying again", error)
        await asyncio.sleep(backoff(attempt))
        attempt += 1


class _Session:
    """One period of service, from the first claim to the last result."""

    def __init__(self, worker: Worker, venue: Venue) -> None:
        self.worker = worker
        self.venue = venue
        self.runs: dict[str, Run] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.done: list[tuple[Claim, dict[str, Any]]] = []
        self.wake = asyncio.Event()
        self.is_active = asyncio.Event()
        self.draining = asyncio.Event()
        self.abandoned = asyncio.Event()
        self.is_claiming = False
        self.is_closed = False
        self.threads = ThreadPoolExecutor(worker.parallel, thread_name_prefix="catena-job")

    # -- life cycle

    def drain(self) -> None:
        """Claims nothing more. A second request gives running jobs back without waiting for them."""
        if self.draining.is_set():
            self.abandoned.set()
        else:
            log.info("draining: %d jobs are running", len(self.runs))
        self.draining.set()
        self.wake.set()

    async def run(self) -> None:
        beats = asyncio.create_task(self.beat_loop())
        try:
            await self.claim_loop()
        finally:
            self.draining.set()
            await self.finish_running()
            beats.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beats
            self.threads.shutdown(wait=False, cancel_futures=True)

    async def finish_running(self) -> None:
        """Lets running jobs end within the grace period, then gives the others back."""
        for claim, end in self.done:
            self.start(self.end(claim, end))
        self.done.clear()
        abandoned = asyncio.ensure_future(self.abandoned.wait())
        everything = asyncio.ensure_future(self.all_tasks())
        await asyncio.wait({abandoned, everything}, timeout=self.worker.grace, return_when=asyncio.FIRST_COMPLETED)
        for run in list(self.runs.values()):
            run.hand_back()
        # Plain functions cannot be interrupted; their results are refused by the fence when the lease has passed.
        await asyncio.wait({everything}, timeout=min(self.worker.grace, 5.0))
        self.is_closed = True
        for waiter in (abandoned, everything):
            waiter.cancel()
        for task in self.tasks:
            task.cancel()

    async def all_tasks(self) -> None:
        while self.tasks:
            await asyncio.wait(set(self.tasks))

    def start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # -- claims

    async def claim_loop(self) -> None:
        attempt = 0
        while not self.draining.is_set():
            free = self.worker.parallel - len(self.runs)
            if free <= 0:
                await self.wake.wait()
                self.wake.clear()
                continue
            done, self.done = self.done[:DONE_BATCH_MAX], self.done[DONE_BATCH_MAX:]
            self.is_claiming = True
            try:
                answer = await self.claim(free, done)
                attempt = 0
            except (Unreachable, VenueError) as error:
                self.done = done + self.done
                if isinstance(error, VenueError) and not error.is_transient:
                    raise
                log.warning("%s; claiming again", error)
                await self.pause_claims(backoff(attempt))
                attempt += 1
                continue
            finally:
                self.is_claiming = False
            self.settle(done, answer.get("done") or [])
            for job in answer.get("jobs") or ():
                self.accept(Claim.from_json(job))

    async def claim(self, free: int, done: list[tuple[Claim, dict[str, Any]]]) -> dict[str, Any]:
        ends = [{"id": claim.id, "fence": claim.fence, **end} for claim, end in done]
        # More results are waiting than one request takes: they must not wait for new jobs.
        wait_ms = 0 if self.done else CLAIM_WAIT_MS
        return await self.venue.claim(self.worker.queues, min(free, CLAIM_JOBS_MAX), wait_ms, ends)

    async def pause_claims(self, seconds: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.draining.wait(), seconds)

    def settle(self, done: list[tuple[Claim, dict[str, Any]]], answers: Sequence[dict[str, Any]]) -> None:
        """Handles the answers to results that were sent with a claim."""
        for (claim, end), answer in zip(done, answers):
            code = answer.get("code")
            if code == "fenced":
                log.warning("job %s: the result came too late", claim.id)
            elif code is not None:
                # The request of its own says why, and ends the job if its result is at fault.
                self.start(self.end(claim, end))

    def accept(self, claim: Claim) -> None:
        if self.draining.is_set():
            self.start(self.end(claim, Released(()).end()))
            return
        run = Run(claim, _WorkerLink(self))
        self.runs[claim.id] = run
        self.is_active.set()
        self.start(self.work(run))

    # -- jobs

    async def work(self, run: Run) -> None:
        """Runs one job and hands in its result."""
        claim = run.claim
        operation = self.worker.operation_for(claim)
        outcome: Outcome
        if operation is None:
            outcome = Failed(f"this worker has no handler for {claim.op or claim.operation}", "no_handler")
        else:
            outcome = await execute(run, operation, self.threads)
        if self.is_closed:
            return
        await self.send_reports(run, outcome)
        self.forget(run)
        if isinstance(outcome, Dropped):
            log.info("job %s was stopped", claim.id)
            return
        end = self.signed(claim, outcome.end())
        if self.is_claiming or self.draining.is_set() or _size(end) > DONE_BYTES_MAX:
            await self.end(claim, end)
        else:
            self.done.append((claim, end))
            self.wake.set()

    def signed(self, claim: Claim, end: dict[str, Any]) -> dict[str, Any]:
        """The end with the signature of the worker, if it has a key. Questions and jobs that are given back are not signed."""
        key = self.worker.key
        if key is None or not {"output", "error"} & end.keys():
            return end
        # What counts is the value that the venue reads from the JSON.
        plain = json.loads(json.dumps(end))
        return {**plain, "signature": key.sign_end(claim.id, claim.fence, plain)}

    def forget(self, run: Run) -> None:
        if self.runs.get(run.claim.id) is run:
            del self.runs[run.claim.id]
        if not self.runs:
            self.is_active.clear()
        self.wake.set()

    async def send_reports(self, run: Run, outcome: Outcome) -> None:
        """Sends the last progress and log of a job before its end: a venue drops what arrives after it. They are not worth
        repeating the request for."""
        if isinstance(outcome, Dropped):
            return
        await run.no_reports_on_way.wait()
        if not run.has_reports():
            return
        with contextlib.suppress(CatenaError):
            await self.venue.beat([_beat_of(run.claim, run.take_reports())], 0)

    async def end(self, claim: Claim, end: dict[str, Any]) -> None:
        """Ends a job. A result that the venue refuses becomes a failure, so that the job does not wait for its lease."""
        try:
            await self.venue.end(claim, end)
        except VenueError as error:
            if error.code == "fenced":
                log.warning("job %s: the result came too late", claim.id)
                return
            log.error("job %s: the result was refused: %s", claim.id, error)
            refused = Failed(f"the venue refused the result: {error}", "result_refused", "never")
            with contextlib.suppress(VenueError):
                await self.venue.end(claim, refused.end())

    # -- beats

    async def beat_loop(self) -> None:
        loop = asyncio.get_running_loop()
        attempt = 0
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.is_active.wait(), IDLE_BEAT_S)
            started = loop.time()
            sent = [(run, run.take_reports()) for run in self.runs.values()]
            beats = [_beat_of(run.claim, reports) for run, reports in sent]
            # A job does not end while its reports are on their way, so a beat that has some must be answered at once.
            wait_ms = 0 if not beats or any(reports for _, reports in sent) else BEAT_WAIT_MS
            try:
                answer = await self.venue.beat(beats, wait_ms)
                attempt = 0
                for run, _ in sent:
                    run.confirm_reports()
            except CatenaError as error:
                for run, reports in sent:
                    run.restore_reports(reports)
                log.warning("%s; reporting again", error)
                await asyncio.sleep(backoff(attempt))
                attempt += 1
                continue
            by_id = {run.claim.id: run for run, _ in sent}
            for entry in answer.get("signals") or ():
                self.signal(by_id.get(entry.get("id")), entry.get("signal"))
            await asyncio.sleep(max(0.0, started + BEAT_INTERVAL_MIN_S - loop.time()))

    def signal(self, run: Run | None, signal: str | None) -> None:
        """Passes a signal on. It concerns the run that sent the beat, not a later one of the same job."""
        if run is None:
            return
        if signal == "stop":
            run.stop()
        elif signal == "pause":
            run.pause()
        elif signal == "go":
            run.resume()


def _beat_of(claim: Claim, reports: dict[str, Any]) -> dict[str, Any]:
    return {"id": claim.id, "fence": claim.fence, **reports}


def _size(end: dict[str, Any]) -> int:
    return len(json.dumps(end))


class _WorkerLink:
    """The venue as a run sees it."""

    def __init__(self, session: _Session) -> None:
        self._session = session

    async def record_step(self, claim: Claim, key: str, input: Any, output: Any) -> Any:
        return await self._session.venue.step(claim, key, input, output)

    async def call(self, claim: Claim, key: str, operation: str, input: Any, wait_ms: int) -> CallResult:
        return await self._session.venue.call(claim, key, operation, input, wait_ms)

    def call_wait_ms(self) -> int:
        is_full = len(self._session.runs) >= self._session.worker.parallel
        return CALL_WAIT_BUSY_MS if is_full else CALL_WAIT_MS


@contextlib.contextmanager
def _signals(session: _Session) -> Any:
    """Drains on SIGTERM and SIGINT. Signals can be handled in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    installed = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, session.drain)
            installed.append(number)
    try:
        yield
    finally:
        for number in installed:
            loop.remove_signal_handler(number)
