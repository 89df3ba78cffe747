"""Handlers in the in-process helper: steps, calls, questions, crashes and failures."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any

import pytest

from catena_worker import CallFailed, Context, Failure, Retry, RetryPolicy, SyncContext, define
from catena_worker.operation import Options
from catena_worker.testing import CrashPoint, Harness


@dataclass
class Receipt:
    number: int


async def order(ctx: Context, item: str) -> str:
    """Charges a card and sends an item."""

    async def charge() -> Receipt:
        return Receipt(7)

    receipt = await ctx.step("charge", charge)
    label = await ctx.call("label", "o/label", {"item": item})
    answer = await ctx.ask("approve", f"send {item}?", returns=bool)
    if not answer:
        return "kept"
    ctx.progress(1, 2)
    await ctx.step("send", lambda: f"{label}/{receipt.number}")
    ctx.log("sent\ntoday")
    return f"{label}/{receipt.number}"


def order_sync(ctx: SyncContext, item: str) -> str:
    receipt = ctx.step("charge", lambda: Receipt(7), returns=Receipt)
    label = ctx.call("label", "o/label", {"item": item})
    answer = ctx.ask("approve", f"send {item}?", returns=bool)
    if not answer:
        return "kept"
    ctx.progress(1, 2)
    ctx.step("send", lambda: f"{label}/{receipt.number}")
    ctx.log("sent\ntoday")
    return f"{label}/{receipt.number}"


CALLS = {"o/label": lambda input: f"label for {input['item']}"}


@pytest.mark.parametrize("handler", [order, order_sync])
@pytest.mark.parametrize("slow", [False, True])
def test_a_handler_runs_to_its_end_and_everything_is_recorded(handler: Any, slow: bool) -> None:
    result = Harness(handler, calls=CALLS, answers=[True], slow_calls=slow).run({"item": "book"})
    assert (result.status, result.output) == ("COMPLETE", "label for book/7")
    assert result.steps == ["charge", "send"]
    assert result.calls == {"label": ("o/label", {"item": "book"})}
    assert result.questions == ["send book?"]
    assert result.progress == [{"processedItems": 1, "totalItems": 2}]
    assert result.log == ["sent", "today"]
    assert result.runs == (3 if slow else 2)


@pytest.mark.parametrize("handler", [order, order_sync])
def test_a_crash_at_any_step_changes_nothing(handler: Any) -> None:
    result = Harness(handler, calls=CALLS, answers=[True]).check_replay({"item": "book"})
    assert set(result.recorded) == {"charge", "approve?", "approve", "send"}


@pytest.mark.parametrize("handler", [order, order_sync])
def test_a_step_lost_by_a_crash_runs_again_and_a_recorded_one_does_not(handler: Any) -> None:
    harness = Harness(handler, calls=CALLS, answers=[True])
    lost = harness.run({"item": "book"}, crash=CrashPoint("charge", "before"))
    assert lost.steps == ["charge", "charge", "send"] and lost.attempts == 2
    kept = harness.run({"item": "book"}, crash=CrashPoint("charge", "after"))
    assert kept.steps == ["charge", "send"] and kept.output == lost.output


def test_check_replay_finds_a_handler_that_depends_on_chance() -> None:
    counter = itertools.count()

    async def handler(ctx: Context) -> int:
        await ctx.step("first", lambda: None)
        return next(counter)

    with pytest.raises(AssertionError, match="changes the result"):
        Harness(handler).check_replay()


def test_an_answer_of_the_wrong_type_is_asked_for_again() -> None:
    result = Harness(order, calls=CALLS, answers=["perhaps", False]).run({"item": "book"})
    assert result.output == "kept"
    assert "the last answer was not valid" in result.questions[1]


def test_equal_answers_to_two_questions_are_two_answers() -> None:
    async def handler(ctx: Context) -> list[str]:
        return [await ctx.ask("first", "1?"), await ctx.ask("second", "2?")]

    result = Harness(handler, answers=["yes", "yes"]).run()
    assert (result.output, result.questions) == (["yes", "yes"], ["1?", "2?"])


def test_a_stale_answer_does_not_answer_a_later_question() -> None:
    async def handler(ctx: Context) -> list[str]:
        first = await ctx.ask("first", "1?")
        await ctx.step("between", lambda: None)
        return [first, await ctx.ask("second", "2?")]

    # After the crash the job still carries the first answer.
    result = Harness(handler, answers=["a", "b"]).run(crash=CrashPoint("between"))
    assert result.output == ["a", "b"]


def test_without_an_answer_the_job_waits() -> None:
    result = Harness(order, calls=CALLS).run({"item": "book"})
    assert result.status == "INPUT_REQUIRED"


def test_a_failed_call_raises_in_the_handler() -> None:
    async def handler(ctx: Context) -> str:
        try:
            await ctx.call("pay", "o/pay", 1)
        except CallFailed as failed:
            return f"{failed.key} {failed.status}: {failed.error}"
        return "paid"

    def pay(_: Any) -> None:
        raise ValueError("no money")

    assert Harness(handler, calls={"o/pay": pay}).run().output == "pay FAILED: no money"


@pytest.mark.parametrize("slow", [False, True])
def test_several_calls_run_at_once(slow: bool) -> None:
    async def handler(ctx: Context) -> int:
        outputs = await ctx.calls({str(n): ("o/square", n) for n in range(4)}, returns=int)
        return sum(outputs.values())

    result = Harness(handler, calls={"o/square": lambda n: n * n}, slow_calls=slow).run()
    assert result.output == 14 and result.runs == (2 if slow else 1)


def test_calls_gathered_with_a_running_step_do_not_repeat_it() -> None:
    async def handler(ctx: Context) -> list[Any]:
        async def slow_step() -> str:
            for _ in range(20):
                await asyncio.sleep(0)
            return "done"

        return list(await asyncio.gather(ctx.call("a", "o/a", 1), ctx.step("slow", slow_step)))

    result = Harness(handler, calls={"o/a": lambda n: n}, slow_calls=True).run()
    assert result.output == [1, "done"] and result.steps == ["slow"]


@pytest.mark.skipif(not hasattr(asyncio, "TaskGroup"), reason="task groups exist since Python 3.11")
def test_a_call_in_a_task_group_can_give_the_job_back() -> None:
    async def handler(ctx: Context) -> list[Any]:
        async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined,unused-ignore]
            tasks = [group.create_task(ctx.call(str(n), "o/a", n)) for n in range(3)]
        return [task.result() for task in tasks]

    assert Harness(handler, calls={"o/a": lambda n: n}, slow_calls=True).run().output == [0, 1, 2]


def test_a_key_used_twice_fails() -> None:
    async def handler(ctx: Context) -> None:
        for n in range(2):
            await ctx.step("same", lambda: n)

    result = Harness(handler).run()
    assert result.status == "FAILED" and "'same' is used twice" in (result.error or "")


def test_a_handler_says_whether_another_attempt_may_help() -> None:
    async def handler(ctx: Context, kind: str) -> int:
        if kind == "final":
            raise Failure("wrong card", code="card")
        if ctx.attempt < 3:
            raise Retry("busy", after=0.5)
        return ctx.attempt

    operation = define(handler, options=Options(retry=RetryPolicy(attempts=3)))
    final = Harness(operation).run({"kind": "final"})
    assert (final.status, final.error, final.code, final.attempts) == ("FAILED", "wrong card", "card", 1)
    assert Harness(operation).run({"kind": "busy"}).output == 3
    assert Harness(operation, attempts=2).run({"kind": "busy"}).status == "FAILED"


def test_an_exception_becomes_the_error_of_the_job() -> None:
    def handler() -> None:
        raise KeyError("name")

    result = Harness(handler).run()
    assert (result.status, result.error) == ("FAILED", "KeyError: 'name'")


def test_input_and_output_of_the_wrong_type_fail_for_good() -> None:
    def handler(n: int) -> Any:
        return object()

    harness = Harness(handler, attempts=5)
    assert harness.run({"n": "1"}).code == "invalid_input"
    assert harness.run({"n": 1}).code == "invalid_output"
    assert harness.run({"n": 1}).attempts == 1
