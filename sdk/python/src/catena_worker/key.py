"""Keys: the identity of a worker or caller, tokens that it issues for itself, and what a worker signs."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import httpx

from .cad003 import value_id
from .ed25519 import KEY_BYTES, is_signed_by, public_key, sign
from .errors import Unreachable
from .limits import KEY_FILE_BYTES_MAX, TOKEN_REFRESH_S, TOKEN_S

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_ED25519 = b"\xed\x01"
"""The prefix of an Ed25519 key in a did:key (multicodec)."""


class Key:
    """An Ed25519 key pair. Its DID is the identity of whoever holds it."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self.public = public_key(seed)
        self.did = did_key(self.public)

    @classmethod
    def generate(cls) -> Key:
        """A new key."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def from_file(cls, file: str | os.PathLike[str]) -> Key:
        """The key in a file of 32 bytes or 64 hex digits, as `catena --key FILE` reads it."""
        with Path(file).open("rb") as opened:
            data = opened.read(KEY_FILE_BYTES_MAX)
        text = data.strip()
        if re.fullmatch(rb"(0x)?[0-9a-fA-F]{64}", text):
            return cls(bytes.fromhex(text[-64:].decode()))
        if len(data) != KEY_BYTES:
            raise ValueError(f"{file} is not a key: expected {KEY_BYTES} bytes or {2 * KEY_BYTES} hex digits")
        return cls(data)

    def __repr__(self) -> str:
        return f"Key({self.did})"

    def sign(self, message: bytes) -> bytes:
        """The Ed25519 signature over a message."""
        return sign(self._seed, self.public, message)

    def sign_end(self, job: str, fence: int, end: Mapping[str, Any]) -> str:
        """The signature of the end of a job, an object with `output` or `error`."""
        return _base64url(self.sign(end_id(job, fence, end)))

    def token(self, audience: str, origin: str) -> str:
        """A token for the venue with this DID, at this URL without a path. It is valid for a few minutes."""
        now = int(time.time())
        header = {"alg": "EdDSA", "typ": "JWT", "kid": self.did.removeprefix("did:key:")}
        claims = {"iss": self.did, "sub": self.did, "iat": now, "exp": now + TOKEN_S, "aud": audience, "origin": origin}
        signed = ".".join(_base64url(json.dumps(part).encode()) for part in (header, claims))
        return f"{signed}.{_base64url(self.sign(signed.encode()))}"


def key_in_environment() -> Key | None:
    """The key in the file that `CATENA_KEY` names."""
    file = os.environ.get("CATENA_KEY")
    return Key.from_file(file) if file else None


class KeyAuth(httpx.Auth):
    """Authenticates requests with tokens that a key issues for one venue."""

    def __init__(self, key: Key, url: str) -> None:
        self._key = key
        self._url = httpx.URL(url)
        self._audience: str | None = None
        self._token = ""
        self._refresh_at = 0.0

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        if self._audience is None:
            response = yield httpx.Request("GET", self._url.join("/.well-known/did.json"))
            await response.aread()
            self._audience = _venue_did(response)
        if time.monotonic() >= self._refresh_at:
            origin = f"{self._url.scheme}://{self._url.netloc.decode()}"
            self._token = self._key.token(self._audience, origin)
            self._refresh_at = time.monotonic() + TOKEN_REFRESH_S
        request.headers["authorization"] = f"Bearer {self._token}"
        yield request


def _venue_did(response: httpx.Response) -> str:
    try:
        document = response.json() if response.status_code == 200 else None
    except ValueError:
        document = None
    found = document.get("id") if isinstance(document, dict) else None
    if not isinstance(found, str):
        raise Unreachable(f"{response.request.url} does not name the DID of a venue")
    return found


def end_id(job: str, fence: int, end: Mapping[str, Any]) -> bytes:
    """What a worker signs: the Value ID of `{job, fence, output}` or `{job, fence, error}`."""
    (name,) = {"output", "error"} & end.keys()
    return bytes.fromhex(value_id({"job": job, "fence": fence, name: end[name]})[2:])


def is_end_signed_by(did: str, signature: str, job: str, fence: int, end: Mapping[str, Any]) -> bool:
    """Whether the holder of the key in a did:key signed the end of a job."""
    public = public_key_of(did)
    value = _from_base64url(signature)
    return public is not None and value is not None and is_signed_by(public, end_id(job, fence, end), value)


def did_key(public: bytes) -> str:
    """The did:key of a public key."""
    number = int.from_bytes(_ED25519 + public, "big")
    digits = ""
    while number:
        number, digit = divmod(number, 58)
        digits = _BASE58[digit] + digits
    return f"did:key:z{digits}"


def public_key_of(did: str) -> bytes | None:
    """The Ed25519 key in a did:key. `None` if it is another DID."""
    digits = did.removeprefix("did:key:z")
    if digits == did or not 0 < len(digits) <= 64 or any(digit not in _BASE58 for digit in digits):
        return None
    number = 0
    for digit in digits:
        number = number * 58 + _BASE58.index(digit)
    data = number.to_bytes(64, "big").lstrip(b"\0")
    is_key = data.startswith(_ED25519) and len(data) == len(_ED25519) + KEY_BYTES
    return data[len(_ED25519) :] if is_key and did_key(data[len(_ED25519) :]) == did else None


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _from_base64url(text: str) -> bytes | None:
    if not re.fullmatch(r"[0-9A-Za-z_-]*", text):
        return None
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
