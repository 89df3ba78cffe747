"""The verifier against `catena verify`: same verdict, at the same record, on valid and changed histories."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from catena_worker import Key, VerificationFailed
from catena_worker.verify import verify_history
from test_verify import ENDED_CALL, FIRST, RUN, STARTED_CALL, chain

BINARY = os.environ.get("CATENA_BIN")
HISTORIES = 500

pytestmark = pytest.mark.skipif(not BINARY, reason="CATENA_BIN is not set: nothing to compare with")

JOB, RECORD = "0x" + "2" * 32, "0x" + "3" * 64
STARTED: dict[str, Any] = {"status": "STARTED"}
STEP = {"kind": "step", "started": [{"step": 0, "job": JOB, "record": RECORD}]}
STEP_ENDED = {"kind": "step", "ended": [{"step": 0, "status": "COMPLETE", "record": RECORD}]}
HELD = {"kind": "held", "outcome": {"status": "COMPLETE", "output": [1, 1.0]}}
REUSED = {"reused": [{"step": 1, "job": JOB, "record": RECORD}], "reusedOutputs": [5]}

KEY = Key(b"1" * 32)

CHAINS: list[list[dict[str, Any]]] = [
    list(RUN),
    [FIRST, STARTED, {"status": "PAUSED"}, {"status": "PAUSED", "note": HELD}, STARTED, {"status": "COMPLETE", "output": [1, 1.0]}],
    [{**FIRST, **REUSED}, STARTED, {**STARTED, "note": STEP}, {**STARTED, "note": STEP_ENDED}, {"status": "COMPLETE", "output": None}],
    [
        FIRST,
        STARTED,
        {"status": "INPUT_REQUIRED", "message": "Really?", "output": {}},
        {"status": "STARTED", "trigger": {"messageId": "m"}},
        {**STARTED, "note": {"kind": "attempt", "attempt": 2, "reason": "busy", "code": "c"}},
        {**STARTED, "note": {"kind": "recovered", "attempt": 3, "interruptions": 1}},
        {"status": "FAILED", "error": "no"},
    ],
    [FIRST, STARTED, {"status": "COMPLETE", "by": KEY.did, "output": {"a": [1, 1.0]}}],
    [FIRST, STARTED, {"status": "FAILED", "by": KEY.did, "error": "no"}],
    [{**FIRST, "parent": {"job": JOB, "call": 3}, "status": "REJECTED", "error": "no"}],
    [FIRST, STARTED, {**STARTED, "note": {**STARTED_CALL, **{"ended": ENDED_CALL["ended"]}}}, {"status": "CANCELLED", "error": "x"}],
]
VALUES: list[Any] = [
    None, True, -1, 0, 1, 1.0, 2**31, 2**63, 1_000_000, "", "x", "0x12", JOB, RECORD, RECORD.upper(), [], {}, [{}], {"job": JOB},
    "PENDING", "STARTED", "PAUSED", "COMPLETE", "FAILED", "TIMEOUT", "call", "step", "held", "message", STEP, STARTED_CALL, HELD,
]  # fmt: skip
NAMES = ["status", "note", "output", "error", "message", "trigger", "by", "input", "parent", "updated", "prev", "reused", "extra"]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every member of every object and array inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for name, member in list(items) for found in [(value, name), *places(member)]]


def history(seed: int) -> str:
    """A history that is left as it is, changed and hashed again, or changed only."""
    chance = random.Random(seed)
    records = copy.deepcopy(chance.choice(CHAINS))
    how = chance.randrange(8)
    if how < 5:
        record = chance.choice(records)
        if chance.random() < 0.3:
            record[chance.choice(NAMES)] = copy.deepcopy(chance.choice(VALUES))
        else:
            container, name = chance.choice(places(record))
            if chance.random() < 0.3:
                del container[name]
            else:
                container[name] = copy.deepcopy(chance.choice(VALUES))
    if how == 5:
        records.insert(chance.randrange(len(records) + 1), copy.deepcopy(chance.choice(chance.choice(CHAINS))))
    document = chain(*records)
    if chance.random() < 0.3:
        sign(chance, document)
    if how == 6:
        entries = document["records"]
        match chance.randrange(3):
            case 0:
                entries.remove(chance.choice(entries))
            case 1:
                entries.append(chance.choice(entries))
            case _:
                entries.reverse()
    if how == 7:
        container, name = chance.choice(places(document))
        container[name] = copy.deepcopy(chance.choice(VALUES))
    return json.dumps(document)


def sign(chance: random.Random, document: dict[str, Any]) -> None:
    """Adds a signature to the last record, by the key that it names or by another one."""
    entry = document["records"][-1]
    record = entry["record"]
    end = {"output": record.get("output")} if record.get("status") == "COMPLETE" else {"error": record.get("error")}
    value = chance.choice([KEY, KEY, Key(b"2" * 32)]).sign_end(str(document["records"][0]["record"].get("id")), 7, end)
    members = [{"fence": 7, "value": value}] * 4 + [{"fence": 8, "value": value}, {"value": value}, {"fence": 7, "value": 1}, value]
    entry["signature"] = chance.choice(members)


def ours(text: str) -> tuple[str, int | None]:
    try:
        verify_history(text)
    except VerificationFailed as failed:
        return failed.code, failed.record
    return "valid", None


def theirs(text: str) -> tuple[str, int | None]:
    assert BINARY is not None
    command = [str(Path(BINARY).resolve()), "verify", "--json", "-"]
    found = subprocess.run(command, input=text, capture_output=True, text=True)
    verdict = json.loads(found.stdout or found.stderr)
    return ("valid", None) if verdict.get("valid") else (verdict["code"], verdict.get("record"))


def test_the_verdict_is_that_of_catena_verify() -> None:
    texts = [history(seed) for seed in range(HISTORIES)]
    with ThreadPoolExecutor(2) as threads:
        expected = list(threads.map(theirs, texts))
    for seed, (text, verdict) in enumerate(zip(texts, expected)):
        assert ours(text) == verdict, f"seed {seed}: {text}"
    codes = {code for code, _ in expected}
    assert {"valid", "hash_mismatch", "illegal_transition", "malformed_record", "commitment", "bad_annotation", "signature"} <= codes, codes
