"""An order: a charge that happens once, two calls at the same time, and a person who decides.

    python examples/order.py
    catena run o/order -i '{"order": {"item": "book", "amount": 12}}'

The job becomes INPUT_REQUIRED; answer it with a message (`true` or `false`) to let it continue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from catena_worker import Context, Failure, Limit, RetryPolicy, SyncContext, Worker

worker = Worker()


@dataclass
class Order:
    item: str
    amount: Annotated[int, {"minimum": 1}]


@dataclass
class Receipt:
    number: str
    amount: int


@worker.operation(name="order", retry=RetryPolicy(attempts=5), timeout_ms=7 * 24 * 3600 * 1000)
async def place_order(ctx: Context, order: Order) -> dict[str, str]:
    """Charges a customer, prepares a parcel and sends it once somebody has approved."""

    async def charge() -> Receipt:
        # A real service would get ctx.idempotency_key, so that a repeated request charges once.
        return Receipt(number=f"R-{ctx.idempotency_key[-6:]}", amount=order.amount)

    receipt = await ctx.step("charge", charge, input={"amount": order.amount})
    ctx.progress(1, 3)
    parts = await ctx.calls(
        {"label": ("o/label", {"item": order.item}), "weight": ("test:echo", {"grams": 100 * order.amount})}
    )
    ctx.progress(2, 3)
    if not await ctx.ask("approve", f"Send {order.item}, {parts['weight']['grams']} g?", returns=bool):
        raise Failure(f"{order.item} was not approved", code="not_approved")
    ctx.log(f"sending {parts['label']}")
    return {"label": parts["label"], "receipt": receipt.number}


@worker.operation(name="label", limit=Limit(running=2))
def make_label(ctx: SyncContext, item: str) -> str:
    """Prints a label. A plain function runs in a thread."""
    ctx.check()
    return f"LABEL {item}"


if __name__ == "__main__":
    worker.run()
