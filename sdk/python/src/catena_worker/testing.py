"""Runs a handler without a venue: `Harness` records what it does, answers its calls and questions, and makes it crash.

    harness = Harness(checkout, calls={"o/pay": lambda order: {"receipt": 7}}, answers=["yes"])
    result = harness.run({"order": 1})
    assert result.output == {"receipt": 7}
    harness.check_replay({"order": 1})    # the same output whichever step a crash follows
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .errors import CatenaError
from .execute import execute
from .limits import REPLAYS_MAX
from .operation import Operation, define
from .run import ASKED, Asked, CallResult, Claim, Completed, Failed, Released, Run
from .schema import encode


@dataclass(frozen=True)
class CrashPoint:
    """Where the worker dies: `before` the output of a step is recorded, or right `after`."""

    key: str
    when: Literal["before", "after"] = "after"


@dataclass
class Result:
    """What became of a job, and everything that its handler did."""

    status: str = "STARTED"
    """`COMPLETE`, `FAILED`, or `INPUT_REQUIRED` if the harness has no further answer."""
    output: Any = None
    error: str | None = None
    code: str | None = None
    attempts: int = 1
    runs: int = 0
    """How often the handler was started."""
    steps: list[str] = field(default_factory=list)
    """Keys of the steps in the order in which their work was done; a step lost by a crash occurs again."""
    recorded: dict[str, Any] = field(default_factory=dict)
    """The outputs of the recorded steps and answers."""
    calls: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """The calls by key: operation and input."""
    questions: list[str] = field(default_factory=list)
    progress: list[dict[str, Any]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


class Harness:
    """Runs a handler as a worker would, in memory.

    `calls` maps operation references to functions from input to output; one that raises makes the call fail. `answers` are given to
    questions in order. With `slow_calls` every call is given back once before it has ended. `attempts` is the number of attempts that
    the operation's retry policy would allow; no time passes between them.
    """

    def __init__(
        self,
        handler: Operation | Callable[..., Any],
        *,
        calls: Mapping[str, Callable[[Any], Any]] | None = None,
        answers: Sequence[Any] = (),
        slow_calls: bool = False,
        attempts: int | None = None,
    ) -> None:
        self.operation = handler if isinstance(handler, Operation) else define(handler)
        policy = self.operation.options.retry
        self.attempts = attempts if attempts is not None else policy.attempts if policy else 1
        self.calls = dict(calls or {})
        self.answers = list(answers)
        self.slow_calls = slow_calls

    def run(self, input: Any = None, *, crash: CrashPoint | None = None) -> Result:
        """Runs a job to its end. With `crash`, the worker dies once at that point and another one claims the job."""
        return asyncio.run(self.arun(input, crash=crash))

    async def arun(self, input: Any = None, *, crash: CrashPoint | None = None) -> Result:
        """The same in a running event loop."""
        return await _Job(self, encode(input), crash).run()

    def check_replay(self, input: Any = None) -> Result:
        """Crashes the worker before and after each step in turn. Raises `AssertionError` if a crash changes how the job ends.

        Returns the result of the run without a crash. A handler fails this check if what it does depends on anything but its
        input and the outputs of its steps, such as the time or a random number.
        """
        plain = self.run(input)
        for key in list(plain.recorded):
            for when in ("before", "after"):
                point = CrashPoint(key, when)
                found = self.run(input, crash=point)
                same = (found.status, found.output, found.error) == (plain.status, plain.output, plain.error)
                assert same, f"a crash {when} step {key!r} is recorded changes the result from {plain} to {found}"
                repeated = [step for step in set(found.steps) if found.steps.count(step) > plain.steps.count(step)]
                lost = {key} if when == "before" else set()
                assert set(repeated) <= lost, f"after a crash {when} step {key!r} is recorded, {repeated} ran again"
        return plain


class _RecordingRun(Run):
    """A run that keeps every report, where a worker sends the last one."""

    def __init__(self, claim: Claim, link: _Job, result: Result) -> None:
        super().__init__(claim, link)
        self._result = result

    def report(self, done: int | None, total: int | None, stats: dict[str, Any] | None) -> None:
        super().report(done, total, stats)
        self._result.progress.append(self.progress or {})


class _Job:
    """One job in the harness, with what a venue would store. Also the link of its runs."""

    def __init__(self, harness: Harness, input: Any, crash: CrashPoint | None) -> None:
        self.harness = harness
        self.input = input
        self.crash = crash
        self.result = Result()
        self.answers = list(harness.answers)
        self.message: Any = None
        self.ended: dict[str, CallResult] = {}
        self.current: Run | None = None

    async def run(self) -> Result:
        while self.result.runs < REPLAYS_MAX:
            self.result.runs += 1
            if await self.attempt():
                return self.result
        raise CatenaError(f"the job has not ended after {REPLAYS_MAX} runs")

    async def attempt(self) -> bool:
        """Runs the handler once. Returns true if the job has ended or waits for an answer that nobody gives."""
        result = self.result
        claim = Claim(
            id="0x" + "0" * 31 + "1",
            fence=result.runs,
            attempt=result.attempts,
            operation=self.harness.operation.asset_id,
            op=f"o/{self.harness.operation.name}",
            input=self.input,
            steps=dict(result.recorded),
            message=self.message,
            idempotency_key="0x" + "0" * 31 + "1",
        )
        run = self.current = _RecordingRun(claim, self, result)
        outcome = await execute(run, self.harness.operation)
        reports = run.take_reports()
        result.log += reports["log"].split("\n") if "log" in reports else []
        if run.is_stopped:  # The crash.
            result.attempts += 1
            return False
        if isinstance(outcome, Completed):
            result.status, result.output = "COMPLETE", outcome.output
            return True
        if isinstance(outcome, Asked):
            return self.answer(outcome)
        if isinstance(outcome, Released):
            for key in outcome.keys:
                self.finish_call(key)
            return False
        assert isinstance(outcome, Failed), outcome
        result.error, result.code = outcome.error, outcome.code
        if outcome.retry == "never" or result.attempts >= self.harness.attempts:
            result.status = "FAILED"
            return True
        result.attempts += 1
        return False

    def answer(self, asked: Asked) -> bool:
        self.result.questions.append(asked.message)
        if not self.answers:
            self.result.status = "INPUT_REQUIRED"
            return True
        self.message = encode(self.answers.pop(0))
        return False

    # -- the link

    async def record_step(self, claim: Claim, key: str, input: Any, output: Any) -> Any:
        is_step = not key.endswith(ASKED) and key + ASKED not in self.result.recorded
        if is_step:
            self.result.steps.append(key)
        self.crash_if("before", key)
        if self.current is not None and not self.current.is_stopped:
            self.result.recorded[key] = output
            self.crash_if("after", key)
        return output

    def crash_if(self, when: str, key: str) -> None:
        if self.crash is not None and self.current is not None and (self.crash.when, self.crash.key) == (when, key):
            self.crash = None
            self.current.stop()

    async def call(self, claim: Claim, key: str, operation: str, input: Any, wait_ms: int) -> CallResult:
        known = self.result.calls.setdefault(key, (operation, input))
        if known != (operation, input):
            raise CatenaError(f"the call {key!r} was made before, with another operation or input: {known}")
        if key not in self.ended and not self.harness.slow_calls:
            self.finish_call(key)
        return self.ended.get(key, CallResult(f"call-{key}", "STARTED"))

    def finish_call(self, key: str) -> None:
        operation, input = self.result.calls[key]
        stub = self.harness.calls.get(operation)
        if stub is None:
            raise CatenaError(f"the handler calls {operation!r}, which the harness does not have: give it in `calls`")
        try:
            output = stub(input)
            assert not inspect.isawaitable(output), "a function in `calls` must not be async"
            self.ended[key] = CallResult(f"call-{key}", "COMPLETE", encode(output))
        except Exception as error:
            self.ended[key] = CallResult(f"call-{key}", "FAILED", error=str(error))

    def call_wait_ms(self) -> int:
        return 0
