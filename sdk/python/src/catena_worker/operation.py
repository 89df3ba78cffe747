"""Operations: a handler with the definition under which the venue knows it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .cad003 import value_id
from .context import Context, SyncContext
from .schema import Schema, Signature, signature_of


@dataclass(frozen=True)
class RetryPolicy:
    """When a failed attempt is repeated. Members that are `None` have the venue's defaults."""

    attempts: int
    """Attempts in total, 1 to 100."""
    backoff_ms: int | None = None
    """Wait before the second attempt."""
    factor: float | None = None
    """Factor by which each further wait grows."""
    jitter: float | None = None
    """Fraction by which a wait may be longer at random."""
    timeout_ms: int | None = None
    """Time limit of one attempt."""
    on: Sequence[str] | None = None
    """Failure codes that are retried."""

    def definition(self) -> dict[str, Any]:
        return _without_none(
            attempts=self.attempts,
            backoffMs=self.backoff_ms,
            factor=self.factor,
            jitter=self.jitter,
            timeoutMs=self.timeout_ms,
            on=None if self.on is None else list(self.on),
        )


@dataclass(frozen=True)
class Limit:
    """How many jobs of the queue run at once."""

    running: int
    by: Sequence[str | int] | None = None
    """Path into the input: the limit then applies to each value at this path."""

    def definition(self) -> dict[str, Any]:
        return _without_none(running=self.running, by=None if self.by is None else list(self.by))


@dataclass(frozen=True)
class Rate:
    """How many jobs of the queue start per second."""

    per_second: float
    by: Sequence[str | int] | None = None
    """Path into the input: the rate then applies to each value at this path."""

    def definition(self) -> dict[str, Any]:
        return _without_none(perSecond=self.per_second, by=None if self.by is None else list(self.by))


Recovery = Literal["rerun", "fail", "pause"]


@dataclass(frozen=True)
class Options:
    """The optional members of an operation's definition."""

    description: str | None = None
    timeout_ms: int | None = None
    retry: RetryPolicy | None = None
    idempotent: bool | None = None
    recovery: Recovery | None = None
    priority: int | None = None
    limit: Limit | None = None
    rate: Rate | None = None
    secrets: Sequence[str] | None = None
    """Names of secrets of the caller that the handler gets as `ctx.secrets`."""


@dataclass(frozen=True)
class Operation:
    """A function that runs as a job."""

    name: str
    """The operation is `o/<name>`."""
    queue: str
    function: Callable[..., Any]
    signature: Signature
    options: Options = field(default_factory=Options)

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @property
    def metadata(self) -> dict[str, Any]:
        """The asset that is registered. Its Value ID is the ID of the operation."""
        options = self.options
        operation = _without_none(
            adapter="worker",
            queue=self.queue,
            input=self.signature.input_schema,
            output=self.signature.output_schema,
            timeoutMs=options.timeout_ms,
            retry=options.retry and options.retry.definition(),
            idempotent=options.idempotent,
            recovery=options.recovery,
            priority=options.priority,
            limit=options.limit and options.limit.definition(),
            rate=options.rate and options.rate.definition(),
            secrets=None if options.secrets is None else list(options.secrets),
        )
        return _without_none(name=self.name, description=options.description, operation=operation)

    @property
    def asset_id(self) -> str:
        """The ID under which the venue stores this definition: 64 hex digits."""
        return value_id(self.metadata)[2:]

    @property
    def input_schema(self) -> Schema:
        return self.signature.input_schema

    @property
    def output_schema(self) -> Schema:
        return self.signature.output_schema


def define(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    queue: str | None = None,
    options: Options | None = None,
) -> Operation:
    """Makes an operation of a function. Name, schemas and description come from the function unless they are given."""
    own = name or function.__name__.replace("_", "-")
    options = options or Options()
    if options.description is None:
        text = inspect.getdoc(function)
        description = None if not text else " ".join(text.split("\n\n")[0].split())
        options = Options(**{**options.__dict__, "description": description})
    is_async = inspect.iscoroutinefunction(function)
    wanted, other = (Context, SyncContext) if is_async else (SyncContext, Context)

    def is_context(hint: Any) -> bool:
        if hint is other:
            kind = "an async function" if is_async else "a plain function"
            raise TypeError(f"{function.__name__} is {kind}: its context is a {wanted.__name__}")
        return hint is wanted

    return Operation(own, queue or own, function, signature_of(function, is_context), options)


def _without_none(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
