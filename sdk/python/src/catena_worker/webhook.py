"""Jobs that a venue sends to a URL: checks who sent a request before anything in it is believed.

    job = receive(venue_did, request.headers, request.body)
    if job.attempt == 1: ...
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping
from dataclasses import dataclass

from .ed25519 import is_signed_by
from .errors import CatenaError, VerificationFailed
from .key import public_key_of
from .limits import WEBHOOK_AGE_S, WEBHOOK_SIGNATURES_MAX
from .run import Claim
from .verify import parse


class NotAuthentic(CatenaError):
    """The request was not sent by this venue, or not just now. Answer with 401 and do nothing."""


@dataclass(frozen=True)
class PushedJob:
    """A job that a venue has sent. Answer with its output, or with 202 and end it later with `token`."""

    claim: Claim
    """The job as a worker would have claimed it."""
    venue: str
    """DID of the venue."""
    token: str
    """Bearer token for `end`, `beat`, `step` and `call` of this job."""


def receive(
    venue: str, headers: Mapping[str, str], body: bytes, *, now: float | None = None, max_age: float = WEBHOOK_AGE_S
) -> PushedJob:
    """Checks a request and returns its job. Raises `NotAuthentic`.

    `venue` is the did:key of the venue, which the receiver must know: a document that names its own sender proves nothing. `body` is
    the request's body as it was received. A repetition has the same `Idempotency-Key`; to recognise it is up to the receiver.
    """
    check_signature(venue, headers, body, now=now, max_age=max_age)
    try:
        document = parse(body)
    except VerificationFailed as error:
        raise NotAuthentic(f"the body is not a job: {error.reason}") from None
    if not isinstance(document, dict) or not all(name in document for name in ("id", "fence", "token")):
        raise NotAuthentic("the body is not a job: it needs `id`, `fence` and `token`")
    return PushedJob(Claim.from_json(document), venue, str(document["token"]))


def check_signature(
    venue: str, headers: Mapping[str, str], body: bytes, *, now: float | None = None, max_age: float = WEBHOOK_AGE_S
) -> None:
    """Checks that a venue has signed a request, as Standard Webhooks describe (`v1a`), at most `max_age` seconds ago."""
    public = public_key_of(venue)
    if public is None:
        raise ValueError(f"{venue!r} is not a did:key with an Ed25519 key")
    found = {name.lower(): value for name, value in headers.items()}
    missing = [name for name in ("webhook-id", "webhook-timestamp", "webhook-signature") if not found.get(name)]
    if missing:
        raise NotAuthentic(f"the header {missing[0]} is missing")
    timestamp = found["webhook-timestamp"]
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise NotAuthentic("the header webhook-timestamp is not a time in seconds")
    if abs((time.time() if now is None else now) - int(timestamp)) > max_age:
        raise NotAuthentic(f"the request was not signed within the last {max_age:g} seconds")
    signed = f"{found['webhook-id']}.{timestamp}.".encode() + body
    signatures = found["webhook-signature"].split()[:WEBHOOK_SIGNATURES_MAX]
    if not any(is_signed_by(public, signed, _decode(text)) for text in signatures if text.startswith("v1a,")):
        raise NotAuthentic(f"the request is not signed by {venue}")


def _decode(signature: str) -> bytes:
    try:
        return base64.b64decode(signature.removeprefix("v1a,"), validate=True)
    except (binascii.Error, ValueError):
        return b""
