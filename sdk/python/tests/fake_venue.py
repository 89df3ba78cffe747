"""A venue in memory that speaks `/worker/v1` and the part of the grid API that the tests use, over real HTTP on a free port.

Each request is handled in a thread of its own. Long polls wait on one condition, which every change notifies. Its history is not
a chain: verification is tested with recorded histories and with the real binary.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STEP_CHARS_MAX = 1_000
"""Longest output of a step that is sent along with a claim."""

ENDED = {"COMPLETE", "FAILED", "CANCELLED", "REJECTED", "TIMEOUT"}


class Refused(Exception):
    def __init__(self, status: int, code: str, retry: str = "never") -> None:
        self.status = status
        self.body = {"error": f"refused: {code}", "code": code, "retry": retry, "hint": "Read the test."}
        super().__init__(code)


@dataclass
class FakeJob:
    id: str
    op: str
    queue: str
    input: Any
    operation: str = ""
    status: str = "PENDING"
    fence: int = 0
    attempt: int = 1
    holder: str | None = None
    steps: dict[str, Any] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    awaiting: list[str] = field(default_factory=list)
    message: Any = None
    output: Any = None
    error: str | None = None
    code: str | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    ends: list[dict[str, Any]] = field(default_factory=list)
    last_end: dict[str, Any] | None = None
    progress: list[Any] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    signal: str | None = None
    attempts_max: int = 1
    history: list[str] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        job = {"id": self.id, "status": self.status, "op": self.op, "input": self.input, "output": self.output}
        return {**job, "error": self.error} if self.error else job


class FakeVenue:
    """Start it with `with FakeVenue() as venue`; `venue.url` is its address."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.jobs: dict[str, FakeJob] = {}
        self.operations: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.instant: dict[str, Callable[[Any], Any]] = {}
        self.failures: dict[str, list[Refused | None]] = {}
        """What the next requests of an action get instead of an answer; `None` closes the connection."""
        self.delays_reports = False
        """Whether a beat with reports is slower than the requests that follow it."""
        self.counter = itertools.count(1)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> FakeVenue:
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    # -- what a test does

    def invoke(self, op: str, input: Any = None, *, attempts: int = 1) -> FakeJob:
        with self.changed:
            return self.create(op, input, attempts)

    def create(self, op: str, input: Any, attempts: int = 1) -> FakeJob:
        metadata = self.operations.get(op.removeprefix("o/"), {"operation": {"queue": op}})
        job = FakeJob(f"0x{next(self.counter):032x}", op, metadata["operation"]["queue"], input, attempts_max=attempts)
        self.jobs[job.id] = job
        if op in self.instant:
            job.output, job.status = self.instant[op](input), "COMPLETE"
        self.changed.notify_all()
        return job

    def wait(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Waits until something is true of the venue's state."""
        with self.changed:
            assert self.changed.wait_for(lambda: bool(condition()), seconds), "the venue never reached this state"

    def wait_for(self, job: FakeJob, *statuses: str) -> FakeJob:
        self.wait(lambda: job.status in (statuses or ENDED))
        return job

    def signal(self, job: FakeJob, signal: str) -> None:
        with self.changed:
            job.signal = signal
            if signal == "stop":
                job.fence += 1
                job.holder = None
                job.status = "CANCELLED"
            self.changed.notify_all()

    def lose_lease(self, job: FakeJob) -> None:
        """Offers the job again, as after the end of a lease."""
        with self.changed:
            job.fence += 1
            job.holder = None
            job.attempt += 1
            job.status = "PENDING"
            self.changed.notify_all()

    def answer(self, job: FakeJob, content: Any) -> None:
        with self.changed:
            job.message = content
            job.status = "PENDING"
            self.changed.notify_all()

    # -- the protocol

    def offered(self, queues: list[str]) -> list[FakeJob]:
        def is_ready(job: FakeJob) -> bool:
            ended = all(self.jobs[job.calls[key]].status in ENDED for key in job.awaiting)
            return job.status == "PENDING" and job.queue in queues and ended

        return [job for job in self.jobs.values() if is_ready(job)]

    def claim(self, body: dict[str, Any]) -> dict[str, Any]:
        done = []
        for end in body.get("done", ()):
            try:
                self.end(end["id"], end)
                done.append({"id": end["id"], "ok": True})
            except Refused as refused:
                done.append({"id": end["id"], "code": refused.body["code"]})
        self.changed.notify_all()
        self.changed.wait_for(lambda: self.offered(body["queues"]), body["waitMs"] / 1000)
        claimed = []
        for job in self.offered(body["queues"])[: body["max"]]:
            job.status, job.holder = "STARTED", body["worker"]
            job.fence += 1
            job.awaiting = []
            claimed.append(self.offer(job))
        self.changed.notify_all()
        return {"jobs": claimed, "leaseUntil": int(time.time() * 1000) + 10_000, "done": done}

    def offer(self, job: FakeJob) -> dict[str, Any]:
        offer = {
            "id": job.id,
            "fence": job.fence,
            "attempt": job.attempt,
            "operation": job.operation,
            "op": job.op,
            "input": job.input,
            "steps": [self.step_of(key, output) for key, output in job.steps.items()],
            "deadline": None,
            "idempotencyKey": job.id,
        }
        return {**offer, "message": job.message} if job.message is not None else offer

    def step_of(self, key: str, output: Any) -> dict[str, Any]:
        is_omitted = len(json.dumps(output)) > STEP_CHARS_MAX
        return {"key": key, "status": "COMPLETE", **({"omitted": True} if is_omitted else {"output": output})}

    def beat(self, body: dict[str, Any]) -> dict[str, Any]:
        for entry in body["jobs"]:
            job = self.jobs[entry["id"]]
            if self.delays_reports and len(entry) > 2:
                self.changed.notify_all()
                # Long enough for an end that does not wait for this beat to arrive before it.
                self.changed.wait_for(lambda: job.status in ENDED, 0.3)
            if job.status in ENDED:
                continue
            if "progress" in entry:
                job.progress.append(entry["progress"])
            if "log" in entry:
                job.log += entry["log"].split("\n")
        self.changed.notify_all()

        def signals() -> list[dict[str, str]]:
            found = []
            for entry in body["jobs"]:
                job = self.jobs[entry["id"]]
                if job.fence != entry["fence"] or job.status in ENDED:
                    found.append({"id": job.id, "signal": "stop"})
                elif job.signal is not None:
                    found.append({"id": job.id, "signal": job.signal})
                    job.signal = None
            return found

        found = signals()
        limit = time.monotonic() + body.get("waitMs", 0) / 1000
        while not found and (left := limit - time.monotonic()) > 0:
            self.changed.wait(left)
            found = signals()
        return {"leaseUntil": int(time.time() * 1000) + 10_000, "signals": found}

    def held(self, id: str, fence: int) -> FakeJob:
        job = self.jobs.get(id)
        if job is None:
            raise Refused(404, "job_not_found")
        if job.fence != fence or job.holder is None:
            raise Refused(409, "fenced")
        return job

    def end(self, id: str, body: dict[str, Any]) -> dict[str, Any]:
        known = self.jobs.get(id)
        plain = {name: value for name, value in body.items() if name != "id"}
        if known is not None and known.last_end == plain:
            return {"id": id, "repeated": True}
        job = self.held(id, body["fence"])
        job.last_end = plain
        job.ends.append(plain)
        job.holder = None
        if "output" in body:
            job.status, job.output = "COMPLETE", body["output"]
        elif "ask" in body:
            job.status = "INPUT_REQUIRED"
            job.asked.append(body["ask"])
        elif "awaiting" in body:
            job.status, job.awaiting = "PENDING", body["awaiting"]
        elif body.get("retry") != "never" and job.attempt < job.attempts_max:
            job.status, job.error = "PENDING", body["error"]
            job.attempt += 1
        else:
            job.status, job.error, job.code = "FAILED", body["error"], body.get("code")
        self.changed.notify_all()
        return {"id": id, "ok": True}

    def step(self, id: str, body: dict[str, Any]) -> dict[str, Any]:
        job = self.held(id, body["fence"])
        output = job.steps.setdefault(body["key"], body["output"])
        self.changed.notify_all()
        return {"job": f"{id}-step", "status": "COMPLETE", "output": output}

    def call(self, id: str, body: dict[str, Any]) -> dict[str, Any]:
        job = self.held(id, body["fence"])
        if body["key"] not in job.calls:
            job.calls[body["key"]] = self.create(body["operation"], body["input"]).id
        called = self.jobs[job.calls[body["key"]]]
        self.changed.wait_for(lambda: called.status in ENDED, body.get("waitMs", 0) / 1000)
        answer = {"job": called.id, "status": called.status}
        if called.status == "COMPLETE":
            answer["output"] = called.output
        return answer

    def respond(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = path.partition("?")[0].strip("/").split("/")
        action = parts[-1] if parts[0] == "worker" else path
        failures = self.failures.get(action)
        if failures:
            failure = failures.pop(0)
            if failure is None:
                raise ConnectionAbortedError
            raise failure
        if path == "/worker/v1/claim":
            return 200, self.claim(body)
        if path == "/worker/v1/beat":
            return 200, self.beat(body)
        if path.startswith("/worker/v1/jobs/"):
            return 200, {"end": self.end, "step": self.step, "call": self.call}[parts[4]](parts[3], body)
        if method == "PUT" and parts[:3] == ["api", "v1", "operations"]:
            self.operations[parts[3]] = body
            return 200, {"name": parts[3], "version": 1, "id": "ab" * 32}
        if (method, path) == ("POST", "/api/v1/invoke"):
            return 201, self.create(body["operation"], body["input"]).json()
        if parts[:3] == ["api", "v1", "jobs"] and len(parts) == 4:
            job = self.jobs.get(parts[3])
            if job is None:
                raise Refused(404, "job_not_found")
            if method == "POST":
                job.message, job.status = body["content"], "PENDING"
                self.changed.notify_all()
                return 202, {"id": job.id, "queued": True}
            self.changed.wait_for(lambda: job.status in ENDED, 5)
            return 200, job.json()
        raise Refused(404, "endpoint_not_found")

    def handler(self) -> type[BaseHTTPRequestHandler]:
        venue = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                text = self.rfile.read(int(self.headers.get("content-length", 0)))
                body = json.loads(text) if text else None
                headers = {name.lower(): value for name, value in self.headers.items()}
                try:
                    with venue.changed:
                        venue.requests.append((self.command, self.path, headers, body))
                        status, answer = venue.respond(self.command, self.path, body)
                except Refused as refused:
                    status, answer = refused.status, refused.body
                except ConnectionAbortedError:
                    self.close_connection = True
                    return
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = handle_any

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler
