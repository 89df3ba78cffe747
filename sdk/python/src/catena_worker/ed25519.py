"""Ed25519 (RFC 8032) with integers: the standard library has no signatures, and one more dependency would be a compiled one.

A signature takes about a millisecond. The time depends on the key, as it does with all integers of Python: sign where nobody but the
owner of the key can measure, which is true of a worker that sends its results to a venue.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

KEY_BYTES = 32
SIGNATURE_BYTES = 64

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT_OF_MINUS_ONE = pow(2, (_P - 1) // 4, _P)

Point = tuple[int, int, int, int]
"""Extended coordinates (X, Y, Z, T) with x = X/Z, y = Y/Z and x*y = T/Z."""

_IDENTITY: Point = (0, 1, 1, 0)


def public_key(seed: bytes) -> bytes:
    """The public key of a secret seed of 32 bytes."""
    return _compress(_multiply_base(_expand(seed)[0]))


def sign(seed: bytes, public: bytes, message: bytes) -> bytes:
    """The signature over a message with a seed and its public key."""
    scalar, prefix = _expand(seed)
    nonce = _hash_to_scalar(prefix, message)
    commitment = _compress(_multiply_base(nonce))
    challenge = _hash_to_scalar(commitment, public, message)
    return commitment + ((nonce + challenge * scalar) % _ORDER).to_bytes(32, "little")


def is_signed_by(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the signature over a message was made with this key. Weak keys and malleable signatures are refused."""
    if len(public) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    key, commitment = _decompress(public), _decompress(signature[:32])
    response = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or response >= _ORDER or _is_weak(key) or _is_weak(commitment):
        return False
    challenge = _hash_to_scalar(signature[:32], public, message)
    return _is_equal(_multiply_base(response), _add(commitment, _multiply(challenge, key)))


def _expand(seed: bytes) -> tuple[int, bytes]:
    if len(seed) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(seed)}")
    digest = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(digest[:32], "little")
    return scalar & ((1 << 254) - 8) | (1 << 254), digest[32:]


def _hash_to_scalar(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % _ORDER


def _add(p: Point, q: Point) -> Point:
    a = (p[1] - p[0]) * (q[1] - q[0]) % _P
    b = (p[1] + p[0]) * (q[1] + q[0]) % _P
    c = 2 * p[3] * q[3] * _D % _P
    d = 2 * p[2] * q[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _multiply(scalar: int, point: Point) -> Point:
    result = _IDENTITY
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point = _add(point, point)
        scalar >>= 1
    return result


@lru_cache(maxsize=1)
def _base_powers() -> list[Point]:
    """The base point, doubled 0 to 255 times."""
    powers = [_BASE]
    while len(powers) < 256:
        powers.append(_add(powers[-1], powers[-1]))
    return powers


def _multiply_base(scalar: int) -> Point:
    result = _IDENTITY
    for at, power in enumerate(_base_powers()):
        if scalar >> at & 1:
            result = _add(result, power)
    return result


def _is_equal(p: Point, q: Point) -> bool:
    return (p[0] * q[2] - q[0] * p[2]) % _P == 0 and (p[1] * q[2] - q[1] * p[2]) % _P == 0


def _is_weak(point: Point) -> bool:
    """Whether the point is one of the eight of small order."""
    return _is_equal(_multiply(8, point), _IDENTITY)


def _compress(point: Point) -> bytes:
    inverse = pow(point[2], -1, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _decompress(data: bytes) -> Point | None:
    """The point of 32 bytes. `None` if they are not the encoding of one."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT_OF_MINUS_ONE % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


def _base() -> Point:
    point = _decompress((4 * pow(5, -1, _P) % _P).to_bytes(32, "little"))
    assert point is not None
    return point


_BASE = _base()
