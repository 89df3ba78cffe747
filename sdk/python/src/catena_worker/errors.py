"""The errors of the library, and the exceptions by which a handler says how its job ends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any


class CatenaError(Exception):
    """The base of every error of this library."""


class Unreachable(CatenaError):
    """The venue could not be reached, or the connection broke before it answered."""


class VenueError(CatenaError):
    """The venue refused a request."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status = status
        """HTTP status."""
        self.code: str = str(body.get("code", "unknown"))
        """One of the venue's error codes."""
        self.retry: str = str(body.get("retry", "never"))
        """`never`, `same_request`, `after_read` or `later`."""
        self.detail: str | None = body.get("detail")
        self.hint: str | None = body.get("hint")
        self.body: Mapping[str, Any] = body
        """The entire response."""
        text = str(body.get("error", f"HTTP status {status}"))
        super().__init__(f"{text} ({self.code})" + (f". {self.hint}" if self.hint else ""))

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in (429, 502, 503, 504) or self.retry in ("same_request", "later")


class Fenced(VenueError):
    """Another worker holds the job now, or it has ended: nothing that this run does counts any more."""


class JobFailed(CatenaError):
    """A job ended without an output."""

    def __init__(self, job: str, status: str, error: str | None) -> None:
        self.job = job
        self.status = status
        self.error = error
        super().__init__(f"job {job} is {status}" + (f": {error}" if error else ""))


class CallFailed(JobFailed):
    """An operation that a handler called ended without an output."""

    def __init__(self, key: str, job: str, status: str, error: str | None) -> None:
        super().__init__(job, status, error)
        self.key = key
        """The key of the call."""


class VerificationFailed(CatenaError):
    """A history is incomplete, was changed, or breaks a rule."""

    def __init__(self, code: str, reason: str, record: int | None = None, subjob: str | None = None) -> None:
        self.code = code
        self.reason = reason
        self.record = record
        """Index of the first invalid record. `None` if the fault concerns the entire history."""
        self.subjob = subjob
        """Sub-job in which the fault is. `None` if it is in the job itself."""
        where = "" if record is None else f" at record {record}"
        inside = "" if subjob is None else f" of sub-job {subjob}"
        super().__init__(f"{reason} ({code}{where}{inside})")


class Failure(CatenaError):
    """Raised by a handler: the job fails, and another attempt would not help."""

    def __init__(self, message: str, *, code: str | None = None) -> None:
        self.code = code
        """A code of your own, by which `retry.on` and people can tell failures apart."""
        super().__init__(message)


class Retry(CatenaError):
    """Raised by a handler: this attempt failed, and another one may succeed.

    `after` is the time until the next attempt, in seconds or as a `timedelta`. Without it, the operation's `retry` decides.
    """

    def __init__(self, message: str, *, after: float | timedelta | None = None, code: str | None = None) -> None:
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if seconds is not None and seconds < 0:
            raise ValueError("`after` must not be negative")
        self.after_ms: int | None = None if seconds is None else round(seconds * 1000)
        """Time until the next attempt, in milliseconds."""
        self.code = code
        super().__init__(message)


class Cancelled(BaseException):
    """Raised in a handler that is a plain function: the job was cancelled, timed out, or belongs to another worker.

    It is not an `Exception`, so that `except Exception` does not catch it. In an `async` handler the same is an
    `asyncio.CancelledError`.
    """
