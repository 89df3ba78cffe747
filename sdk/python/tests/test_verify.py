"""Value IDs against the published vectors, and verification of histories."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catena_worker import VerificationFailed
from catena_worker.cad003 import encode, value_id
from catena_worker.verify import parse, verify_history

VECTORS = Path(__file__).resolve().parents[3] / "crates" / "value" / "vectors" / "cad003.json"
VENUE = "did:key:z6MkVenue"


def vectors() -> list[dict[str, Any]]:
    document = json.loads(VECTORS.read_text())
    found = document["vectors"] if isinstance(document, dict) else document
    assert isinstance(found, list)
    return found


def is_lossy(vector: dict[str, Any]) -> bool:
    """Whether a strict reader may refuse the vector, because the reference accepts it with a loss."""
    return vector["category"] in ("string_quirk", "json_quirk") or vector["name"] in ("double_1e400", "double_-1e400")


GENERATORS: dict[str, Callable[[int], Any]] = {
    "vector_of_ints": lambda n: list(range(n)),
    "vector_of_nil": lambda n: [None] * n,
    "vector_of_strings": lambda n: [f"item-{i}" for i in range(n)],
    "map_str_int": lambda n: {f"k{i}": i for i in range(n)},
    "map_str_int_rev": lambda n: {f"k{i}": i for i in reversed(range(n))},
    "map_str_str": lambda n: {f"key-{i}": f"value-{i}" for i in range(n)},
    "string_a": lambda n: "a" * n,
    "string_abc": lambda n: "".join(chr(97 + i % 26) for i in range(n)),
    "string_euro": lambda n: "\u20ac" * n,
}


def test_every_json_vector_has_its_published_id() -> None:
    checked = 0
    for vector in vectors():
        if "json" in vector:
            try:
                value = parse(vector["json"])
            except VerificationFailed:
                assert is_lossy(vector), vector["name"]
                continue
            if is_lossy(vector):
                continue
        elif vector.get("gen") in GENERATORS:
            value = GENERATORS[vector["gen"]](vector["n"])
        else:
            continue
        assert value_id(value) == "0x" + vector["value_id"], vector["name"]
        if "encoding_hex" in vector:
            assert encode(value).hex() == vector["encoding_hex"], vector["name"]
        checked += 1
    assert checked > 400, checked


@pytest.mark.parametrize(
    "text", ["", "01", "[1,]", "NaN", "1e400", '"\\ud800"', '{"\\udc00": 1}', "﻿1", '"\t"', "9" * 9_865]
)
def test_what_has_no_value_id_is_refused(text: str) -> None:
    with pytest.raises(VerificationFailed, match="invalid_json"):
        parse(text)


def chain(*records: dict[str, Any]) -> dict[str, Any]:
    """A history of these records, linked and hashed."""
    entries: list[dict[str, Any]] = []
    for at, fields in enumerate(records):
        record = {"prev": entries[-1]["id"] if entries else None, "updated": 1000 + at, **fields}
        entries.append({"id": value_id(record), "record": record})
    return {"records": entries, "total": len(entries)}


FIRST = {
    "status": "PENDING",
    "id": "0x" + "1" * 32,
    "venue": VENUE,
    "op": "o/work",
    "operation": "ab" * 32,
    "input": {"a": 1},
    "caller": "did:key:z6MkCaller",
    "created": 900,
}
CHILD = {"job": "0x" + "2" * 32, "record": "0x" + "3" * 64}
STARTED_CALL = {"kind": "call", "started": [{"call": 0, "key": "k", "op": "worker:step", **CHILD}]}
ENDED_CALL = {"kind": "call", "ended": [{"call": 0, "status": "COMPLETE", "record": "0x" + "4" * 64}]}
RUN: list[dict[str, Any]] = [
    FIRST,
    {"status": "STARTED", "by": "did:key:z6MkWorker"},
    {"status": "STARTED", "note": STARTED_CALL},
    {"status": "STARTED", "note": ENDED_CALL},
    {"status": "COMPLETE", "output": 1.0},
]


def verdict(history: dict[str, Any]) -> tuple[str, int | None]:
    try:
        verify_history(json.dumps(history))
    except VerificationFailed as failed:
        return failed.code, failed.record
    return "valid", None


def test_a_history_that_follows_the_rules_is_valid() -> None:
    report = verify_history(json.dumps(chain(*RUN)), job="1" * 32)
    assert (report.status, report.records, report.venue) == ("COMPLETE", 5, VENUE)
    assert report.subjobs_unavailable == 1


def test_a_held_outcome_must_follow_the_resume() -> None:
    held = {"kind": "held", "outcome": {"status": "COMPLETE", "output": 1}}
    start: list[dict[str, Any]] = [
        FIRST, {"status": "STARTED"}, {"status": "PAUSED"}, {"status": "PAUSED", "note": held}, {"status": "STARTED"}
    ]
    assert verdict(chain(*start, {"status": "COMPLETE", "output": 1})) == ("valid", None)
    assert verdict(chain(*start, {"status": "COMPLETE", "output": 1.0})) == ("illegal_transition", 5)
    assert verdict(chain(*start)) == ("incomplete", 5)


def changed(at: int, **fields: Any) -> dict[str, Any]:
    records = copy.deepcopy(RUN)
    records[at].update(fields)
    return chain(*records)


@pytest.mark.parametrize(
    ("history", "code", "record"),
    [
        (changed(1, status="COMPLETE", output=1), "illegal_transition", 1),
        (changed(4, status="FAILED"), "malformed_record", 4),
        (changed(4, input={"a": 2}), "binding", 4),
        (changed(3, updated=1), "time_reversed", 3),
        (changed(2, output=2), "bad_annotation", 2),
        (changed(2, note={"kind": "rumour"}), "malformed_record", 2),
        (changed(3, note=STARTED_CALL), "commitment", 3),
        (changed(0, status="STARTED"), "bad_start", 0),
        (chain(*RUN[:3], RUN[4]), "commitment", 3),
        (chain(*RUN, {"status": "FAILED", "error": "late"}), "finality", 5),
        (chain(), "bad_start", None),
        ({**chain(*RUN), "total": 6}, "incomplete", 5),
        ({**chain(*RUN), "next": 5}, "incomplete", 5),
        ({"total": 1}, "malformed_history", None),
    ],
)
def test_a_broken_rule_is_found_at_its_record(history: dict[str, Any], code: str, record: int | None) -> None:
    assert verdict(history) == (code, record)


def test_a_changed_value_or_link_is_found() -> None:
    history = chain(*RUN)
    history["records"][4]["record"]["output"] = 1
    assert verdict(history) == ("hash_mismatch", 4)
    history = chain(*RUN)
    del history["records"][2]
    history["total"] = 4
    assert verdict(history) == ("broken_link", 2)
    history = chain(*RUN)
    history["records"].insert(2, history["records"][1])
    assert verdict(history) == ("duplicate_record", 2)
    fork = chain(*RUN[:2], {"status": "FAILED", "error": "no"})["records"][2]
    history = chain(*RUN[:3])
    history["records"].append(fork)
    assert verdict(history) == ("fork", 3)


def test_another_job_than_the_expected_one_is_refused() -> None:
    with pytest.raises(VerificationFailed, match="expected job"):
        verify_history(json.dumps(chain(*RUN)), job="2" * 32)
