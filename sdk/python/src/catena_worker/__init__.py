"""Run Python functions as durable, verifiable jobs of a Catena venue.

- `Worker` runs functions as jobs; `Context` and `SyncContext` are what a function can do for its job.
- `Client` and `AsyncClient` invoke operations, follow jobs and verify their histories.
- `Key` signs how jobs end and identifies its holder; `receive` checks jobs that a venue sends to a URL.
- `catena_worker.testing.Harness` runs a handler without a venue.
"""

from .client import AsyncClient, Client, Event, Job
from .context import Context, SyncContext
from .errors import (
    CallFailed,
    Cancelled,
    CatenaError,
    Failure,
    Fenced,
    JobFailed,
    Retry,
    Unreachable,
    VenueError,
    VerificationFailed,
)
from .key import Key
from .operation import Limit, Operation, Options, Rate, RetryPolicy, define
from .schema import Mismatch, Secret, schema_of
from .verify import Report
from .webhook import NotAuthentic, PushedJob, check_signature, receive
from .worker import Worker

__all__ = [
    "AsyncClient",
    "CallFailed",
    "Cancelled",
    "CatenaError",
    "Client",
    "Context",
    "Event",
    "Failure",
    "Fenced",
    "Job",
    "JobFailed",
    "Key",
    "Limit",
    "Mismatch",
    "NotAuthentic",
    "Operation",
    "Options",
    "PushedJob",
    "Rate",
    "Report",
    "Retry",
    "RetryPolicy",
    "Secret",
    "SyncContext",
    "Unreachable",
    "VenueError",
    "VerificationFailed",
    "Worker",
    "check_signature",
    "define",
    "receive",
    "schema_of",
]
