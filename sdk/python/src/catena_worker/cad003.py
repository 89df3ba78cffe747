"""The canonical encoding (CAD003) of JSON-shaped values, and their IDs.

A cell is one value or one node of a large one. Inside its parent a cell is written in full if it is short, otherwise as a
reference to its hash. `1` and `1.0` have different IDs.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

EMBEDDED_BYTES_MAX = 140
"""Longest encoding that is written inside its parent. Fixed by CAD003."""

CHUNK_BYTES = 4096
"""Longest byte sequence in one cell. Fixed by CAD003."""

FAN_OUT = 16
"""Most children of a tree node and elements of a vector leaf. Fixed by CAD003."""

HASH_LEAF_MAX = 15
"""Most entries of a map leaf. Fixed by CAD003."""

INTEGER_BYTES_MAX = 4096
"""Longest two's-complement form of an integer. Fixed by CAD003."""


def value_id(value: Any) -> str:
    """The Value ID of a JSON-shaped value: `0x` and 64 lower-case hex digits."""
    return "0x" + _sha3(encode(value)).hex()


def encode(value: Any) -> bytes:
    """The encoding of the root cell. Larger children appear in it as references."""
    if value is None:
        return b"\x00"
    if isinstance(value, bool):  # Before `int`, because a bool is one.
        return b"\xb1" if value else b"\xb0"
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return b"\x1d" + struct.pack(">d", value)
    if isinstance(value, str):
        return _text(0x30, value.encode("utf-8"))
    if isinstance(value, (list, tuple)):
        return _vector([_slot(encode(item)) for item in value])
    if isinstance(value, dict):
        return _map(sorted(_entry(name, member) for name, member in value.items()))
    raise TypeError(f"a {type(value).__name__} has no JSON form")


@lru_cache(maxsize=1024)
def key_hash(name: str) -> bytes:
    """The hash by which the members of an object are ordered."""
    return _sha3(_text(0x30, name.encode("utf-8")))


def _entry(name: str, member: Any) -> tuple[bytes, bytes]:
    return key_hash(name), _slot(_text(0x30, name.encode("utf-8"))) + _slot(encode(member))


def _sha3(data: bytes) -> bytes:
    return hashlib.sha3_256(data).digest()


def _slot(encoding: bytes) -> bytes:
    """A cell as it is written inside its parent."""
    return encoding if len(encoding) <= EMBEDDED_BYTES_MAX else b"\x20" + _sha3(encoding)


def _count(count: int) -> bytes:
    """Base 128, most significant group first, in the shortest form."""
    groups = [count & 0x7F]
    while count := count >> 7:
        groups.append(0x80 | count & 0x7F)
    return bytes(reversed(groups))


def _integer(number: int) -> bytes:
    size = 0 if number == 0 else (number if number > 0 else ~number).bit_length() // 8 + 1
    if size > INTEGER_BYTES_MAX:
        raise ValueError(f"an integer of more than {INTEGER_BYTES_MAX} bytes has no encoding")
    head = bytes([0x10 + size]) if size <= 8 else b"\x19" + _count(size)
    return head + number.to_bytes(size, "big", signed=True)


def _child_size(leaf: int, count: int) -> int:
    """The size of the children of a tree: the smallest power of which at most 16 are needed."""
    size = leaf
    while size * FAN_OUT < count:
        size *= FAN_OUT
    return size


def _text(tag: int, data: bytes) -> bytes:
    head = bytes([tag]) + _count(len(data))
    if len(data) <= CHUNK_BYTES:
        return head + data
    size = _child_size(CHUNK_BYTES, len(data))
    return head + b"".join(_slot(_text(0x31, data[at : at + size])) for at in range(0, len(data), size))


def _vector(slots: Sequence[bytes]) -> bytes:
    count = len(slots)
    tail = count % FAN_OUT
    if count <= FAN_OUT:
        body = list(slots)
    elif tail:
        # The last elements come first, then everything before them as one vector.
        body = [*slots[count - tail :], _slot(_vector(slots[: count - tail]))]
    else:
        size = _child_size(FAN_OUT, count)
        body = [_slot(_vector(slots[at : at + size])) for at in range(0, count, size)]
    return b"\x80" + _count(count) + b"".join(body)


def _nibble(digest: bytes, at: int) -> int:
    return digest[at // 2] >> 4 if at % 2 == 0 else digest[at // 2] & 0x0F


def _map(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The map of entries that are sorted by hash."""
    head = b"\x82" + _count(len(entries))
    if len(entries) <= HASH_LEAF_MAX:
        return head + b"".join(entry for _, entry in entries)
    first, last = entries[0][0], entries[-1][0]
    shift = next(at for at in range(64) if _nibble(first, at) != _nibble(last, at))
    groups: dict[int, list[tuple[bytes, bytes]]] = {}
    for entry in entries:
        groups.setdefault(_nibble(entry[0], shift), []).append(entry)
    mask = sum(1 << digit for digit in groups)
    body = b"".join(_slot(_map(groups[digit])) for digit in sorted(groups))
    return head + bytes([shift]) + mask.to_bytes(2, "big") + body
