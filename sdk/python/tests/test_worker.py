"""A worker against a fake venue over HTTP: claims, results, beats, signals, draining and repetition."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from catena_worker import Cancelled, CatenaError, Context, Failure, Retry, SyncContext, VenueError, Worker
from fake_venue import FakeJob, FakeVenue, Refused

SOURCES = Path(__file__).resolve().parent.parent / "src"


@pytest.fixture(autouse=True)
def short_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that drains waits for its last claim; in tests that should not take long."""
    monkeypatch.setattr("catena_worker.worker.CLAIM_WAIT_MS", 200)


@pytest.fixture
def venue() -> Iterator[FakeVenue]:
    with FakeVenue() as running:
        yield running


@contextlib.asynccontextmanager
async def serving(worker: Worker) -> AsyncIterator[None]:
    """Runs a worker for the duration of a block and drains it afterwards."""
    started = asyncio.Event()
    task = asyncio.ensure_future(worker.serve(started.set))
    waiting = asyncio.ensure_future(started.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()
    try:
        yield
    finally:
        worker.stop()
        await task


async def ended(venue: FakeVenue, job: FakeJob, *statuses: str) -> FakeJob:
    return await asyncio.to_thread(venue.wait_for, job, *statuses)


def sent(venue: FakeVenue, end: str) -> list[Any]:
    return [body for _, path, _, body in venue.requests if path.endswith(end)]


def test_registered_functions_run_as_jobs(venue: FakeVenue) -> None:
    worker = Worker(venue.url, token="secret", parallel=2)

    @worker.operation(name="add", queue="sums")
    async def add(a: int, b: int = 1) -> int:
        """Adds two numbers."""
        return a + b

    @worker.operation
    def shout_loud(text: str) -> str:
        return text.upper()

    async def scenario() -> None:
        async with serving(worker):
            sum_of = venue.invoke("o/add", {"a": 2})
            shout = venue.invoke("o/shout-loud", {"text": "hi"})
            assert (await ended(venue, sum_of)).output == 3
            assert (await ended(venue, shout)).output == "HI"

    asyncio.run(scenario())
    assert venue.operations["add"]["operation"]["queue"] == "sums"
    assert venue.operations["add"]["description"] == "Adds two numbers."
    assert {headers.get("authorization") for _, _, headers, _ in venue.requests} == {"Bearer secret"}


def test_an_old_version_and_an_asset_id_find_their_handler(venue: FakeVenue) -> None:
    worker = Worker(venue.url)

    @worker.operation(queue="q")
    async def first() -> str:
        return "first"

    @worker.operation(queue="q")
    async def second() -> str:
        return "second"

    async def scenario() -> None:
        async with serving(worker):
            for op, operation, output in (
                ("o/first@2", "cd" * 32, "first"),
                ("did:key:zabc/o/second", "", "second"),
                ("ab" * 32, "ab" * 32, "second"),  # the fake registers everything under this ID, `second` last
                (worker.operations["first"].asset_id, worker.operations["first"].asset_id, "first"),
            ):
                with venue.changed:
                    job = venue.create(op, None)
                    job.queue, job.operation = "q", operation
                    venue.changed.notify_all()
                assert (await ended(venue, job)).output == output
            with venue.changed:
                unknown = venue.create("o/third", None)
                unknown.queue = "q"
                venue.changed.notify_all()
            assert (await ended(venue, unknown)).code == "no_handler"

    asyncio.run(scenario())


def test_jobs_run_in_parallel_up_to_the_given_number(venue: FakeVenue) -> None:
    worker = Worker(venue.url, parallel=3)
    running = 0
    most = 0
    three = asyncio.Event()

    @worker.operation
    async def wait() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            three.set()
        await three.wait()
        running -= 1

    async def scenario() -> None:
        async with serving(worker):
            jobs = [venue.invoke("o/wait") for _ in range(9)]
            for job in jobs:
                await ended(venue, job)

    asyncio.run(scenario())
    assert most == 3


def test_results_travel_with_the_next_claim(venue: FakeVenue) -> None:
    worker = Worker(venue.url, parallel=1)

    @worker.operation
    async def echo(n: int) -> int:
        return n

    async def scenario() -> None:
        async with serving(worker):
            jobs = [venue.invoke("o/echo", {"n": n}) for n in range(5)]
            for n, job in enumerate(jobs):
                assert (await ended(venue, job)).output == n

    asyncio.run(scenario())
    assert sum(len(body.get("done", ())) for body in sent(venue, "/claim")) == 5
    assert sent(venue, "/end") == []


def test_steps_are_recorded_and_not_repeated_after_a_lost_lease(venue: FakeVenue) -> None:
    worker = Worker(venue.url, parallel=2)
    charged = 0
    lost = asyncio.Event()

    @worker.operation
    async def order(ctx: Context) -> list[Any]:
        def charge() -> int:
            nonlocal charged
            charged += 1
            return charged

        receipt = await ctx.step("charge", charge, input={"amount": 5})
        if ctx.attempt == 1:
            lost.set()
            await asyncio.Event().wait()
        return [receipt, ctx.attempt]

    async def scenario() -> None:
        async with serving(worker):
            job = venue.invoke("o/order")
            await lost.wait()
            venue.lose_lease(job)
            assert (await ended(venue, job)).output == [1, 2]

    asyncio.run(scenario())
    assert charged == 1
    assert sent(venue, "/step")[0]["input"] == {"amount": 5}


def test_an_output_too_large_to_be_sent_along_is_fetched(venue: FakeVenue) -> None:
    worker = Worker(venue.url, parallel=1)
    made = 0

    @worker.operation
    async def work(ctx: Context) -> int:
        def make() -> str:
            nonlocal made
            made += 1
            return "x" * 5_000

        text = await ctx.step("large", make)
        if ctx.attempt == 1:
            raise Retry("once more")
        return len(text)

    async def scenario() -> None:
        async with serving(worker):
            assert (await ended(venue, venue.invoke("o/work", attempts=2))).output == 5_000

    asyncio.run(scenario())
    assert made == 1


def test_a_run_that_lost_its_job_is_cancelled_by_the_refused_step(venue: FakeVenue) -> None:
    worker = Worker(venue.url, parallel=2)
    outcomes: list[str] = []
    lost = asyncio.Event()

    @worker.operation
    async def work(ctx: Context) -> str:
        if ctx.attempt == 1:
            try:
                lost.set()
                await ctx.step("late", lambda: 1)
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                outcomes.append("cancelled")
                raise
        return "second"

    async def scenario() -> None:
        venue.failures["step"] = [Refused(503, "unavailable", "later")] * 3
        async with serving(worker):
            job = venue.invoke("o/work")
            await lost.wait()
            venue.lose_lease(job)
            assert (await ended(venue, job)).output == "second"

    asyncio.run(scenario())
    assert outcomes == ["cancelled"]


def test_a_worker_with_one_slot_can_call_its_own_queue(venue: FakeVenue) -> None:
    worker = Worker(venue.url, parallel=1)

    @worker.operation(queue="one")
    async def outer(ctx: Context) -> int:
        await ctx.step("before", lambda: None)
        return int(await ctx.call("inner", "o/inner", {"n": 20})) + 2

    @worker.operation(queue="one")
    async def inner(n: int) -> int:
        return n * 2

    async def scenario() -> None:
        async with serving(worker):
            assert (await ended(venue, venue.invoke("o/outer"))).output == 42

    asyncio.run(scenario())
    outer_job = next(job for job in venue.jobs.values() if job.op == "o/outer")
    assert [end for end in outer_job.ends if "awaiting" in end][0]["awaiting"] == ["inner"]
    assert len([body for body in sent(venue, "/step") if body["key"] == "before"]) == 1


def test_a_call_that_ends_in_time_is_returned_without_giving_the_job_back(venue: FakeVenue) -> None:
    worker = Worker(venue.url)
    venue.instant["test:echo"] = lambda input: input

    @worker.operation
    def outer(ctx: SyncContext) -> Any:
        return ctx.call("echo", "test:echo", {"a": 1})

    async def scenario() -> None:
        async with serving(worker):
            job = await ended(venue, venue.invoke("o/outer"))
            assert job.output == {"a": 1} and len(job.ends) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_question_is_asked_and_its_answer_recorded(venue: FakeVenue, kind: str) -> None:
    worker = Worker(venue.url)
    if kind == "async":

        @worker.operation(name="approve")
        async def approve(ctx: Context) -> str:
            return "yes" if await ctx.ask("ok", "Really?", returns=bool) else "no"

    else:

        @worker.operation(name="approve")
        def approve_sync(ctx: SyncContext) -> str:
            return "yes" if ctx.ask("ok", "Really?", returns=bool) else "no"

    async def scenario() -> None:
        async with serving(worker):
            job = venue.invoke("o/approve")
            await ended(venue, job, "INPUT_REQUIRED")
            assert job.asked == [{"message": "Really?", "schema": {"type": "boolean"}}]
            venue.answer(job, True)
            assert (await ended(venue, job)).output == "yes"
            assert job.steps["ok"] is True

    asyncio.run(scenario())


def test_progress_and_log_arrive_before_the_end(venue: FakeVenue) -> None:
    worker = Worker(venue.url)

    @worker.operation
    async def work(ctx: Context) -> None:
        ctx.progress(3, 4, bytesProcessed=10)
        ctx.log("three of four")

    @worker.operation
    def work_sync(ctx: SyncContext) -> None:
        ctx.progress(1)
        ctx.log("one")

    async def scenario() -> None:
        async with serving(worker):
            job = await ended(venue, venue.invoke("o/work"))
            report = {"processedItems": 3, "totalItems": 4, "outputStats": {"bytesProcessed": 10}}
            assert (job.progress, job.log) == ([report], ["three of four"])
            job = await ended(venue, venue.invoke("o/work-sync"))
            assert (job.progress, job.log) == ([{"processedItems": 1}], ["one"])

    asyncio.run(scenario())


def test_a_job_does_not_end_while_its_reports_are_on_their_way(venue: FakeVenue) -> None:
    venue.delays_reports = True
    worker = Worker(venue.url)

    @worker.operation
    async def work(ctx: Context) -> None:
        ctx.progress(1)
        ctx.log("one")
        await asyncio.to_thread(venue.wait, lambda: any("log" in job for beat in sent(venue, "/beat") for job in beat["jobs"]))

    async def scenario() -> None:
        async with serving(worker):
            job = await ended(venue, venue.invoke("o/work"))
            assert (job.progress, job.log) == ([{"processedItems": 1}], ["one"])

    asyncio.run(scenario())


def test_an_idle_worker_says_that_it_runs_nothing(venue: FakeVenue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catena_worker.worker.IDLE_BEAT_S", 0.05)
    worker = Worker(venue.url)

    @worker.operation
    async def work() -> None: ...

    async def scenario() -> None:
        async with serving(worker):
            await asyncio.to_thread(venue.wait, lambda: len(sent(venue, "/beat")) > 1)

    asyncio.run(scenario())
    assert all(body["jobs"] == [] for body in sent(venue, "/beat"))


def test_stop_cancels_an_async_handler(venue: FakeVenue) -> None:
    worker = Worker(venue.url)
    started, cancelled = asyncio.Event(), asyncio.Event()

    @worker.operation
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def scenario() -> None:
        async with serving(worker):
            job = venue.invoke("o/work")
            await started.wait()
            venue.signal(job, "stop")
            await asyncio.wait_for(cancelled.wait(), 60)
            assert job.ends == []

    asyncio.run(scenario())


def test_stop_reaches_a_plain_handler_as_an_event_and_an_exception(venue: FakeVenue) -> None:
    worker = Worker(venue.url)
    started = threading.Semaphore(0)
    outcomes: list[str] = []

    @worker.operation
    def work(ctx: SyncContext) -> None:
        started.release()
        assert ctx.cancelled.wait(60)
        try:
            ctx.step("more", lambda: None)
        except Exception:
            outcomes.append("caught by accident")
        except Cancelled:
            outcomes.append("cancelled")
            raise

    async def scenario() -> None:
        async with serving(worker):
            for _ in range(2):
                job = venue.invoke("o/work")
                await asyncio.to_thread(started.acquire)
                venue.signal(job, "stop")

    asyncio.run(scenario())
    assert outcomes == ["cancelled", "cancelled"]


def test_a_paused_job_takes_no_step_until_it_is_resumed(venue: FakeVenue) -> None:
    worker = Worker(venue.url)
    started = asyncio.Event()
    paused = asyncio.Event()

    @worker.operation
    async def work(ctx: Context) -> bool:
        started.set()
        while not ctx.is_paused:
            await asyncio.sleep(0.01)
        paused.set()
        return await ctx.step("after", lambda: ctx.is_paused)

    async def scenario() -> None:
        async with serving(worker):
            job = venue.invoke("o/work")
            await started.wait()
            venue.signal(job, "pause")
            await paused.wait()
            beats = len(sent(venue, "/beat"))
            await asyncio.to_thread(venue.wait, lambda: len(sent(venue, "/beat")) > beats + 1)
            assert job.steps == {}
            venue.signal(job, "go")
            assert (await ended(venue, job)).output is False

    asyncio.run(scenario())


def test_failures_carry_what_the_handler_said(venue: FakeVenue) -> None:
    worker = Worker(venue.url)

    @worker.operation
    async def fail(ctx: Context, how: str) -> int:
        if how == "final":
            raise Failure("no such card", code="card")
        if how == "later" and ctx.attempt == 1:
            raise Retry("busy", after=1.5, code="busy")
        if how == "bug" and ctx.attempt == 1:
            raise ZeroDivisionError("by zero")
        return ctx.attempt

    async def scenario() -> None:
        async with serving(worker):
            final = await ended(venue, venue.invoke("o/fail", {"how": "final"}, attempts=3))
            assert final.ends == [{"fence": 1, "error": "no such card", "code": "card", "retry": "never"}]
            later = await ended(venue, venue.invoke("o/fail", {"how": "later"}, attempts=3))
            assert later.ends[0] == {"fence": 1, "error": "busy", "code": "busy", "retry": 1500}
            bug = await ended(venue, venue.invoke("o/fail", {"how": "bug"}, attempts=3))
            assert bug.ends[0] == {"fence": 1, "error": "ZeroDivisionError: by zero", "retry": "may"}
            assert (later.output, bug.output) == (2, 2)

    asyncio.run(scenario())


def test_a_venue_that_cannot_be_reached_disturbs_nothing(venue: FakeVenue) -> None:
    worker = Worker(venue.url, parallel=2)

    @worker.operation
    async def work(ctx: Context) -> int:
        return await ctx.step("one", lambda: 1)

    async def scenario() -> None:
        for action in ("claim", "step", "end", "beat"):
            venue.failures[action] = [None, Refused(503, "stopping", "later")]
        async with serving(worker):
            jobs = [venue.invoke("o/work") for _ in range(4)]
            for job in jobs:
                assert (await ended(venue, job)).output == 1
                assert len(job.ends) == 1

    asyncio.run(scenario())


def test_a_lost_answer_to_an_end_is_not_mistaken_for_a_lost_job(venue: FakeVenue) -> None:
    worker = Worker(venue.url)

    @worker.operation
    async def work() -> int:
        return 1

    async def scenario() -> None:
        original = venue.end
        answered = iter([False])

        def end(id: str, body: dict[str, Any]) -> dict[str, Any]:
            answer = original(id, body)
            if not next(answered, True):
                raise ConnectionAbortedError
            return answer

        venue.end = end  # type: ignore[method-assign]
        async with serving(worker):
            job = await ended(venue, venue.invoke("o/work"))
            assert len(job.ends) == 1

    asyncio.run(scenario())


def test_a_refused_result_fails_the_job(venue: FakeVenue) -> None:
    worker = Worker(venue.url)

    @worker.operation
    async def work() -> int:
        return 1

    async def scenario() -> None:
        venue.failures["end"] = [Refused(413, "body_too_large")]
        async with serving(worker):
            # A claim is waiting, so the result is sent by a request of its own.
            await asyncio.to_thread(venue.wait, lambda: sent(venue, "/claim"))
            job = await ended(venue, venue.invoke("o/work"))
            assert (job.status, job.code) == ("FAILED", "result_refused")

    asyncio.run(scenario())


def test_a_refused_claim_ends_the_worker(venue: FakeVenue) -> None:
    worker = Worker(venue.url)

    @worker.operation
    async def work() -> int:
        return 1

    venue.failures["claim"] = [Refused(404, "queue_not_found")]
    with pytest.raises(VenueError, match="queue_not_found"):
        asyncio.run(worker.serve())


def test_too_many_queues_are_refused_before_anything_is_registered(venue: FakeVenue) -> None:
    worker = Worker(venue.url)
    for n in range(17):

        @worker.operation(name=f"work-{n}")
        async def work() -> None: ...

    with pytest.raises(CatenaError, match="at most 16 queues, not 17"):
        asyncio.run(worker.serve())
    assert venue.operations == {}


def test_draining_lets_running_jobs_end_and_claims_no_more(venue: FakeVenue) -> None:
    worker = Worker(venue.url, parallel=1)
    started, proceed = asyncio.Event(), asyncio.Event()

    @worker.operation
    async def work() -> str:
        started.set()
        await proceed.wait()
        return "ended"

    async def scenario() -> None:
        serving_task = asyncio.ensure_future(worker.serve())
        first = venue.invoke("o/work")
        first.queue = "work"
        await started.wait()
        worker.stop()
        second = venue.invoke("o/work")
        proceed.set()
        await serving_task
        assert first.output == "ended"
        assert second.status == "PENDING"

    asyncio.run(scenario())


def test_after_the_grace_period_running_jobs_are_given_back(venue: FakeVenue) -> None:
    worker = Worker(venue.url, parallel=1, grace=0.05)
    started = asyncio.Event()
    outcomes: list[str] = []

    @worker.operation
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            outcomes.append("cancelled")
            raise

    async def scenario() -> None:
        serving_task = asyncio.ensure_future(worker.serve())
        job = venue.invoke("o/work")
        job.queue = "work"
        await started.wait()
        worker.stop()
        await serving_task
        assert outcomes == ["cancelled"]
        assert job.status == "PENDING" and job.ends == [{"fence": 1, "awaiting": []}]

    asyncio.run(scenario())


PROGRAM = """
import sys
from catena_worker import SyncContext, Worker

worker = Worker(sys.argv[1])

@worker.operation
def work(ctx: SyncContext) -> str:
    ctx.step("started", lambda: None)
    return ctx.step("wait", lambda: sys.stdin.readline().strip())

worker.run()
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM")
def test_sigterm_drains_a_worker_process(venue: FakeVenue) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, venue.url],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        stdin=subprocess.PIPE,
        text=True,
    )
    try:
        venue.wait(lambda: "work" in venue.operations)
        job = venue.invoke("o/work")
        venue.wait(lambda: "started" in job.steps)
        process.send_signal(signal.SIGTERM)
        assert process.stdin is not None
        process.stdin.write("read\n")
        process.stdin.flush()
        assert venue.wait_for(job).output == "read"
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
