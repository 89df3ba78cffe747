"""The smallest worker: a function with a retry and a step.

    python examples/greet.py
    catena run o/greet -i '{"name": "Ada"}'
"""

from __future__ import annotations

from catena_worker import Context, Retry, RetryPolicy, Worker

worker = Worker()


@worker.operation(name="greet", retry=RetryPolicy(attempts=3, backoff_ms=500))
async def greet(ctx: Context, name: str, loud: bool = False) -> str:
    """Greets somebody."""
    if ctx.attempt == 1:
        raise Retry("not awake yet")
    text = await ctx.step("text", lambda: f"Hello, {name}!")
    return text.upper() if loud else text


if __name__ == "__main__":
    worker.run()
