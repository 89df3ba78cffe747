"""Runs the handler of an operation for one claimed job and decides how the job ends."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
from concurrent.futures import Executor
from typing import Any

from .context import Context, SyncContext
from .operation import Operation
from .run import Completed, Failed, Outcome, Run, outcome_of
from .schema import Mismatch, encode

log = logging.getLogger("catena_worker")


async def execute(run: Run, operation: Operation, threads: Executor | None = None) -> Outcome:
    """Runs the handler to its outcome. A plain function runs in `threads`, or in the event loop's own."""
    loop = asyncio.get_running_loop()
    context: Context | SyncContext = Context(run) if operation.is_async else SyncContext(run, loop)
    try:
        positional, named = operation.signature.arguments(run.claim.input, context)
    except Mismatch as fault:
        return Failed(f"invalid input: {fault}", "invalid_input", "never")
    try:
        if operation.is_async:
            value = await _interruptible(run, operation.function(*positional, **named))
        else:
            function = functools.partial(operation.function, *positional, **named)
            value = await loop.run_in_executor(threads, contextvars.copy_context().run, function)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and not run.is_stopped and _is_cancelling():
            raise
        outcome = outcome_of(run, error)
        if isinstance(outcome, Failed):
            log.info("job %s: attempt %d failed: %s", run.claim.id, run.claim.attempt, outcome.error, exc_info=error)
        return outcome
    if run.is_stopped:
        return outcome_of(run, asyncio.CancelledError())
    try:
        return Completed(encode(value))
    except Mismatch as fault:
        return Failed(f"invalid output: {fault}", "invalid_output", "never")


async def _interruptible(run: Run, handler: Any) -> Any:
    """Awaits a handler in a task of its own, which `run.stop` cancels."""
    task = asyncio.ensure_future(handler)
    run.on_stop(task.cancel)
    try:
        return await task
    finally:
        if not task.done():
            task.cancel()


def _is_cancelling() -> bool:
    """Whether the surrounding task is being cancelled, as when the program ends. Python 3.10 cannot tell."""
    task = asyncio.current_task()
    cancelling = getattr(task, "cancelling", None)
    return bool(cancelling and cancelling())
