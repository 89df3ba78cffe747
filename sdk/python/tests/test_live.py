"""The library against a real venue: the binary that `CATENA_BIN` names."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from catena_worker import AsyncClient, Client, Context, Failure, Job, JobFailed, Key, NotAuthentic, Retry, RetryPolicy
from catena_worker import SyncContext, VenueError, Worker, receive

BINARY = os.environ.get("CATENA_BIN")
SOURCES = Path(__file__).resolve().parent.parent / "src"
EXAMPLES = SOURCES.parent / "examples"
START_S = 60
WAIT_S = 60

pytestmark = pytest.mark.skipif(not BINARY, reason="CATENA_BIN is not set: no tests against a real venue")


class Venue:
    """A venue process on a free port, which can be killed and started again on the same data and port."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.listen = "127.0.0.1:0"
        self.process: subprocess.Popen[str] | None = None

    def start(self, *options: str) -> None:
        assert BINARY is not None
        command = [str(Path(BINARY).resolve()), "serve", "--listen", self.listen, "--data", f"{self.folder}/data"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CATENA_")}
        self.process = subprocess.Popen(
            [*command, "--log-format", "json", "--executors", "0", *options],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        watchdog = threading.Timer(START_S, self.process.kill)
        watchdog.start()
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            with contextlib.suppress(ValueError):
                fields = json.loads(line).get("fields", {})
                if fields.get("message") == "the venue is ready":
                    self.listen = fields["address"]
                    break
        else:
            raise AssertionError("the venue did not start:\n" + "".join(lines))
        watchdog.cancel()
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(START_S)

    @property
    def url(self) -> str:
        return f"http://{self.listen}"

    def token(self, *options: str) -> str:
        """Creates a token of the venue."""
        assert BINARY is not None
        command = [str(Path(BINARY).resolve()), "token", "create", "--data", f"{self.folder}/data", *options]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=self.folder).stdout.strip()


@pytest.fixture
def venue() -> Iterator[Venue]:
    with tempfile.TemporaryDirectory(prefix="catena-sdk-") as folder:
        running = Venue(folder)
        running.start()
        try:
            yield running
        finally:
            running.stop(signal.SIGKILL)


@contextlib.asynccontextmanager
async def serving(worker: Worker) -> AsyncIterator[None]:
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


async def status(client: AsyncClient, id: str, wanted: str, message: str | None = None) -> Job:
    """Follows a job until it has this status and, if one is given, this message."""

    async def follow() -> Job:
        seen = []
        async for event in client.events(id):
            if event.kind == "job-update":
                seen.append((event.job.status, event.job.json.get("message")))
                if seen[-1] == (wanted, message or seen[-1][1]):
                    return event.job
        raise AssertionError(f"job {id} never became {wanted}: {seen}")

    return await asyncio.wait_for(follow(), WAIT_S)


def invoke_when_registered(client: Client, operation: str, input: Any = None) -> Job:
    """Invokes an operation as soon as a worker that was just started has registered it."""
    limit = time.monotonic() + WAIT_S
    while True:
        try:
            return client.invoke(operation, input)
        except VenueError:
            assert time.monotonic() < limit, f"{operation} was not registered"
            time.sleep(0.02)


def test_functions_run_as_jobs_and_their_chains_verify(venue: Venue) -> None:
    worker = Worker(venue.url)

    @worker.operation(retry=RetryPolicy(attempts=3, backoff_ms=1))
    async def add(ctx: Context, a: int, b: int = 1) -> int:
        """Adds two numbers."""
        if ctx.attempt == 1:
            raise Retry("once more", after=0)
        return await ctx.step("sum", lambda: a + b, input={"a": a, "b": b})

    @worker.operation
    def shout(ctx: SyncContext, text: str) -> str:
        return ctx.step("upper", text.upper)

    async def scenario() -> None:
        async with serving(worker), AsyncClient(venue.url) as client:
            job = await client.invoke("o/add", {"a": 2})
            job = await client.wait(job.id, timeout=WAIT_S)
            assert (job.status, job.output) == ("COMPLETE", 3), job.json
            report = await client.verify(job.id)
            assert (report.status, report.subjobs_verified, report.subjobs_unavailable) == ("COMPLETE", 1, 0)
            assert await client.run("o/shout", {"text": "hi"}, timeout=WAIT_S) == "HI"
            rejected = await client.wait((await client.invoke("o/add", {"a": "two"})).id)
            assert rejected.status == "REJECTED"

    asyncio.run(scenario())


def test_registering_again_keeps_the_asset_and_its_locally_computed_id(venue: Venue) -> None:
    worker = Worker(venue.url)

    @worker.operation
    async def work(n: int) -> int:
        return n

    async def scenario() -> None:
        first = await worker.register()
        assert first == await worker.register() == {"work": worker.operations["work"].asset_id}
        async with serving(worker), AsyncClient(venue.url) as client:
            assert await client.run(first["work"], {"n": 4}, timeout=WAIT_S) == 4

    asyncio.run(scenario())


def test_a_worker_token_can_run_jobs_and_not_register_operations(venue: Venue) -> None:
    owner = venue.token("--subject", "alice")
    token = venue.token("--subject", "alice", "--worker", "wor*")

    def worker_with(token: str, register: bool) -> Worker:
        worker = Worker(venue.url, token=token, register=register)

        @worker.operation
        async def work(ctx: Context, n: int) -> Any:
            return await ctx.step("half", lambda: n // 2)

        return worker

    async def scenario() -> None:
        with pytest.raises(VenueError) as refused:
            await worker_with(token, True).serve()
        assert refused.value.status in (401, 403, 404)
        await worker_with(owner, True).register()
        async with serving(worker_with(token, False)), AsyncClient(venue.url, token=owner) as client:
            assert await client.run("o/work", {"n": 8}, timeout=WAIT_S) == 4

    asyncio.run(scenario())


def test_a_worker_with_a_key_identifies_itself_and_signs_how_jobs_end(venue: Venue) -> None:
    key = Key.generate()
    worker = Worker(venue.url, key=key)

    @worker.operation
    async def divide(ctx: Context, a: int, b: int) -> Any:
        if b == 0:
            raise Failure("division by zero")
        return {"quotient": a / b, "text": "é", "list": [a, b, None, True, 2**70]}

    async def scenario() -> None:
        async with serving(worker), AsyncClient(venue.url, key=key) as client:
            for input, ended in (({"a": 1, "b": 2}, "COMPLETE"), ({"a": 1, "b": 0}, "FAILED")):
                job = await client.wait((await client.invoke("o/divide", input)).id, timeout=WAIT_S)
                assert (job.status, job.json["caller"]) == (ended, key.did), job.json
                report = await client.verify(job.id)
                assert (report.signatures_verified, report.signatures_unchecked) == (1, 0)
                history = await client.history_page(job.id)
                command = [str(Path(BINARY or "").resolve()), "verify", "--json", "-"]
                verified = subprocess.run(command, input=history, check=True, capture_output=True).stdout
                assert json.loads(verified)["signaturesVerified"] == 1
        # A signature of another key than that of the token's subject is refused, and the job does not hang.
        other = Worker(venue.url, token=venue.token("--subject", "alice"), key=key)
        other.operation(divide)
        async with serving(other), AsyncClient(venue.url, token=venue.token("--subject", "alice")) as client:
            job = await client.wait((await client.invoke("o/divide", {"a": 1, "b": 2})).id, timeout=WAIT_S)
            assert (job.status, job.json["errorCode"]) == ("FAILED", "result_refused"), job.json

    asyncio.run(scenario())


def test_a_receiver_checks_who_sent_a_job(tmp_path: Path) -> None:
    received: list[tuple[dict[str, str], bytes]] = []
    identity: list[str] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            headers, body = dict(self.headers.items()), self.rfile.read(int(self.headers["content-length"]))
            received.append((headers, body))
            answer = json.dumps(receive(identity[0], headers, body).claim.input["name"]).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        venue = Venue(str(tmp_path))
        venue.start("--allow-host", address)
        try:
            document = httpx.get(f"{venue.url}/.well-known/did.json").json()
            identity.append(document["id"])
            definition = {"name": "Push", "operation": {"adapter": "worker", "url": f"http://{address}/jobs"}}
            httpx.put(f"{venue.url}/api/v1/operations/push", json=definition).raise_for_status()
            with Client(venue.url) as client:
                assert client.run("o/push", {"name": "Ada"}, timeout=WAIT_S) == "Ada"
            headers, body = received[0]
            with pytest.raises(NotAuthentic):
                receive(Key.generate().did, headers, body)
            with pytest.raises(NotAuthentic):
                receive(identity[0], headers, body.replace(b"Ada", b"Eve"))
        finally:
            venue.stop(signal.SIGKILL)
            server.shutdown()


def test_a_worker_with_one_slot_calls_its_own_queue(venue: Venue) -> None:
    worker = Worker(venue.url, parallel=1)

    @worker.operation(queue="one")
    async def outer(ctx: Context) -> int:
        doubled = await ctx.calls({str(n): ("o/inner", {"n": n}) for n in range(3)}, returns=int)
        return sum(doubled.values())

    @worker.operation(queue="one")
    async def inner(ctx: Context, n: int) -> Any:
        return await ctx.call("echo", "test:echo", 2 * n)

    async def scenario() -> None:
        async with serving(worker), AsyncClient(venue.url) as client:
            job = await client.invoke("o/outer")
            assert (await client.wait(job.id, timeout=WAIT_S)).result() == 6
            assert (await client.verify(job.id)).subjobs_verified == 6

    asyncio.run(scenario())


def test_a_person_answers_and_the_handler_continues(venue: Venue) -> None:
    worker = Worker(venue.url)

    @worker.operation
    async def approve(ctx: Context) -> list[Any]:
        first = await ctx.ask("first", "Really?", returns=bool)
        return [first, await ctx.ask("second", "How many?", returns=int)]

    async def scenario() -> None:
        async with serving(worker), AsyncClient(venue.url) as client:
            job = await client.invoke("o/approve")
            for answer, question in ((True, "Really?"), (7, "How many?")):
                await status(client, job.id, "INPUT_REQUIRED", question)
                await client.send(job.id, answer)
            assert (await client.wait(job.id, timeout=WAIT_S)).result() == [True, 7]
            await client.verify(job.id)

    asyncio.run(scenario())


def test_cancel_reaches_both_kinds_of_handlers_within_a_second(venue: Venue) -> None:
    worker = Worker(venue.url)
    begun = threading.Semaphore(0)
    cancelled = threading.Semaphore(0)

    @worker.operation
    async def sleep() -> None:
        begun.release()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.release()

    @worker.operation
    def sleep_sync(ctx: SyncContext) -> None:
        begun.release()
        ctx.cancelled.wait()
        cancelled.release()

    async def cancel(client: AsyncClient, operation: str) -> float:
        """Returns the seconds that a cancel takes to reach the handler."""
        job = await client.invoke(operation)
        assert await asyncio.to_thread(begun.acquire, True, WAIT_S)
        started = time.monotonic()
        await client.cancel(job.id)
        assert await asyncio.to_thread(cancelled.acquire, True, WAIT_S)
        return time.monotonic() - started

    async def scenario() -> None:
        async with serving(worker), AsyncClient(venue.url) as client:
            for operation in ("o/sleep", "o/sleep-sync"):
                # A busy machine may delay one of them, but not each.
                assert min([await cancel(client, operation) for _ in range(3)]) < 1

    asyncio.run(scenario())


def test_pause_holds_the_next_step_and_resume_continues(venue: Venue) -> None:
    worker = Worker(venue.url)
    is_seen = asyncio.Event()

    @worker.operation
    async def work(ctx: Context) -> str:
        while not ctx.is_paused:
            await asyncio.sleep(0.01)
        is_seen.set()
        return await ctx.step("after", lambda: "resumed")

    async def scenario() -> None:
        async with serving(worker), AsyncClient(venue.url) as client:
            job = await client.invoke("o/work")
            await status(client, job.id, "STARTED")
            await client.pause(job.id)
            await status(client, job.id, "PAUSED")
            # A pause that is over before the worker has heard of it changes nothing.
            await asyncio.wait_for(is_seen.wait(), WAIT_S)
            await client.resume(job.id)
            assert (await client.wait(job.id, timeout=WAIT_S)).result() == "resumed"

    asyncio.run(scenario())


def test_failures_end_the_job_as_the_handler_said(venue: Venue) -> None:
    worker = Worker(venue.url)

    @worker.operation(retry=RetryPolicy(attempts=3, backoff_ms=1))
    async def fail(ctx: Context, how: str) -> int:
        if how == "final":
            raise Failure("no such card", code="card")
        if ctx.attempt < 3:
            raise RuntimeError("flaky")
        return ctx.attempt

    async def scenario() -> None:
        async with serving(worker), AsyncClient(venue.url) as client:
            with pytest.raises(JobFailed, match="no such card"):
                await client.run("o/fail", {"how": "final"}, timeout=WAIT_S)
            assert await client.run("o/fail", {"how": "flaky"}, timeout=WAIT_S) == 3

    asyncio.run(scenario())


def test_a_handler_gets_declared_secrets_and_its_job_does_not_show_them(venue: Venue) -> None:
    worker = Worker(venue.url)

    @worker.operation(secrets=["API_KEY"])
    async def work(ctx: Context) -> str:
        return f"used {ctx.secrets['API_KEY']}"

    async def scenario() -> None:
        stored = httpx.put(f"{venue.url}/api/v1/secrets/API_KEY", json={"value": "pl4nted"}, timeout=START_S)
        assert stored.status_code == 200, stored.text
        async with serving(worker), AsyncClient(venue.url) as client:
            job = await client.wait((await client.invoke("o/work")).id, timeout=30)
            assert (job.status, job.output) == ("COMPLETE", "used [redacted]")

    asyncio.run(scenario())


def test_progress_is_shown(venue: Venue) -> None:
    worker = Worker(venue.url)
    is_seen = False

    @worker.operation
    async def work(ctx: Context) -> None:
        ctx.log("starting")
        done = 0
        # Reports that were sent before the stream was opened are not repeated.
        while not is_seen:
            done += 1
            ctx.progress(done, 10_000)
            await asyncio.sleep(0.05)

    async def scenario() -> None:
        async with serving(worker), AsyncClient(venue.url) as client:
            job = await client.invoke("o/work")
            nonlocal is_seen
            async for event in client.events(job.id, progress=True):
                if event.kind == "progress":
                    break
            is_seen = True
            assert (await client.wait(job.id, timeout=WAIT_S)).status == "COMPLETE"

    asyncio.run(scenario())


def test_a_venue_killed_while_jobs_run_loses_none_of_them(venue: Venue) -> None:
    worker = Worker(venue.url, parallel=20)
    proceed = asyncio.Event()
    ran = 0

    @worker.operation
    async def work(n: int) -> int:
        nonlocal ran
        ran += 1
        await proceed.wait()
        return n

    async def scenario() -> None:
        async with serving(worker), AsyncClient(venue.url) as client:
            jobs = [await client.invoke("o/work", {"n": n}) for n in range(20)]
            while ran < 20:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(venue.stop, signal.SIGKILL)
            proceed.set()
            await asyncio.to_thread(venue.start)
            for n, job in enumerate(jobs):
                assert (await client.wait(job.id, timeout=WAIT_S)).result() == n
            assert ran == 20

    asyncio.run(scenario())


PROGRAM = """
import pathlib, sys
from catena_worker import SyncContext, Worker

worker = Worker(sys.argv[1])
folder = pathlib.Path(sys.argv[2])

@worker.operation
def work(ctx: SyncContext) -> int:
    def once() -> int:
        with open(folder / "ran", "a") as file:
            file.write("x")
        return ctx.attempt
    first = ctx.step("once", once)
    if not (folder / "proceed").exists():
        (folder / "waiting").touch()
        ctx.cancelled.wait()
    return first

worker.run()
"""


def test_a_killed_worker_is_replaced_and_its_steps_are_not_repeated(venue: Venue, tmp_path: Path) -> None:
    def start() -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
        return subprocess.Popen([sys.executable, "-c", PROGRAM, venue.url, str(tmp_path)], env=environment)

    first = start()
    second: subprocess.Popen[bytes] | None = None
    try:
        with Client(venue.url) as client:
            job = invoke_when_registered(client, "o/work")
            limit = time.monotonic() + WAIT_S
            while not (tmp_path / "waiting").exists():
                assert time.monotonic() < limit
                time.sleep(0.02)
            first.kill()
            first.wait()
            (tmp_path / "proceed").touch()
            second = start()
            assert client.wait(job.id, timeout=WAIT_S).result() == 1
            assert (tmp_path / "ran").read_text() == "x"
            assert client.verify(job.id).subjobs_verified == 1
            second.send_signal(signal.SIGTERM)
            assert second.wait(WAIT_S) == 0
    finally:
        for process in (first, second):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def test_the_example_runs_as_the_readme_says(venue: Venue) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "CATENA_VENUE": venue.url}
    process = subprocess.Popen([sys.executable, str(EXAMPLES / "greet.py")], env=environment)
    try:
        with Client(venue.url) as client:
            job = invoke_when_registered(client, "o/greet", {"name": "Ada"})
            assert client.wait(job.id, timeout=WAIT_S).result() == "Hello, Ada!"
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0


def test_the_client_follows_and_verifies_jobs_of_the_venue(venue: Venue) -> None:
    with Client(venue.url) as client:
        assert client.run("test:echo", {"a": [1, 1.0, "é"]}) == {"a": [1, 1.0, "é"]}
        job = client.invoke("test:delay", {"delay": 200, "input": 5})
        statuses = [event.job.status for event in client.events(job.id)]
        assert statuses[-1] == "COMPLETE"
        report = client.verify(job.id, head=client.job(job.id).head)
        assert (report.status, report.job) == ("COMPLETE", job.id)
        never = client.invoke("test:never")
        with pytest.raises(TimeoutError):
            client.wait(never.id, timeout=0.1)
        assert client.pause(never.id).status == "PAUSED"
        assert client.resume(never.id).status == "STARTED"
        assert client.cancel(never.id, "enough").status == "CANCELLED"
        with pytest.raises(JobFailed, match="CANCELLED"):
            client.job(never.id).result()
        outer = client.invoke("test:delay", {"delay": 1, "operation": "test:echo", "input": {"n": 1}})
        assert client.wait(outer.id).result() == {"n": 1}
        assert client.verify(outer.id).subjobs_verified == 1
