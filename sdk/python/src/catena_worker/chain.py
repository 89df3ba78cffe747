"""The rules of a chain: what a record must contain, and which record may follow which.

A chain is folded record by record; the first one that breaks a rule raises `VerificationFailed`. The rules, their codes and the
order in which they are checked are those of `catena verify`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from .cad003 import CHUNK_BYTES, key_hash, value_id
from .run import ENDED

STEPS_MAX = 1_000
"""Most steps of one job."""

CALLS_MAX = 10_000
"""Most calls of one job."""

STATUSES = frozenset({"PENDING", "STARTED", "PAUSED", "INPUT_REQUIRED", "AUTH_REQUIRED"}) | ENDED

_LATER = frozenset({"CANCELLED", "TIMEOUT"})
_NEXT: dict[str, frozenset[str]] = {
    "PENDING": _LATER | {"STARTED", "REJECTED", "PAUSED"},
    "STARTED": _LATER | {"COMPLETE", "FAILED", "INPUT_REQUIRED", "AUTH_REQUIRED", "PAUSED"},
    "PAUSED": _LATER | {"STARTED"},
    "INPUT_REQUIRED": _LATER | {"PAUSED", "STARTED"},
    "AUTH_REQUIRED": _LATER | {"PAUSED", "STARTED"},
}

_OPEN = frozenset({"STARTED", "PAUSED", "INPUT_REQUIRED", "AUTH_REQUIRED"})
_NOTES: dict[str, frozenset[str]] = {
    "step": _OPEN,
    "call": _OPEN,
    "attempt": frozenset({"STARTED"}),
    "message": frozenset({"STARTED", "INPUT_REQUIRED", "AUTH_REQUIRED"}),
    "held": frozenset({"PAUSED"}),
    "recovered": frozenset({"PENDING", "STARTED"}),
}
"""The statuses in which a job may be annotated with each kind of note."""

_HOLDABLE = frozenset({"COMPLETE", "FAILED", "PAUSED", "INPUT_REQUIRED", "AUTH_REQUIRED"})
_IDENTITY = ("id", "venue", "op", "operation", "input", "caller", "created", "parent")
_ANNOTATION = frozenset({"status", "prev", "updated", "note", "message", "trigger", "by", "deadline"})
_I64_MAX = 2**63 - 1
_U32_MAX = 2**32 - 1
_ABSENT: Any = object()


class BadField(Exception):
    """A field is missing or has a wrong value."""


class ChainError(Exception):
    """A record is not valid at its position."""

    def __init__(self, code: str, reason: str) -> None:
        self.code = code
        super().__init__(reason)


def _missing(name: str) -> BadField:
    return BadField(f"`{name}` is missing")


def _wrong(name: str, expected: str) -> BadField:
    return BadField(f"`{name}` must be {expected}")


def is_integer(value: Any, low: int = -(2**63), high: int = _I64_MAX) -> bool:
    """Whether a value is an integer in this range. A double is never an integer, whatever its value."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def short_text(value: Any) -> str | None:
    """The text of a string that is a single cell. Identifiers are never longer."""
    return value if isinstance(value, str) and len(value.encode("utf-8")) <= CHUNK_BYTES else None


def _text(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name, _ABSENT)
    if value is _ABSENT:
        return None
    if not isinstance(value, str):
        raise _wrong(name, "a string")
    return value


_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def job_id(text: str | None) -> str | None:
    """A job ID as `0x` and 32 lower-case hex digits, from any accepted spelling."""
    digits = re.sub("^0[xX]", "", text or "").lower()
    if _UUID.fullmatch(digits):
        digits = digits.replace("-", "")
    return "0x" + digits if re.fullmatch("[0-9a-f]{32}", digits) else None


def record_id(text: str | None) -> str | None:
    """A record ID as `0x` and 64 lower-case hex digits, from any accepted spelling."""
    digits = re.sub("^0[xX]", "", text or "").lower()
    return "0x" + digits if re.fullmatch("[0-9a-f]{64}", digits) else None


def same(a: Any, b: Any) -> bool:
    """Whether two values have the same ID. Absent is the same as absent only."""
    if a is _ABSENT or b is _ABSENT:
        return a is b
    return value_id(a) == value_id(b)


# ------------------------------------------------------------------------------------------------------------ records


@dataclass(frozen=True)
class SubjobStart:
    """A commitment to a sub-job that started: the step with an index, or the call with a number."""

    number: int
    job: str
    record: str
    venue: str | None = None
    key: str = ""
    is_detached: bool = False


@dataclass(frozen=True)
class SubjobEnd:
    number: int
    status: str
    record: str


@dataclass(frozen=True)
class HeldOutcome:
    status: str
    output: Any
    error: str | None
    message: str | None


@dataclass(frozen=True)
class Note:
    kind: str
    started: tuple[SubjobStart, ...] = ()
    ended: tuple[SubjobEnd, ...] = ()
    outcome: HeldOutcome | None = None


@dataclass(frozen=True)
class Record:
    """One state record with its fields parsed."""

    id: str
    fields: dict[str, Any]
    status: str
    prev: str | None
    updated: int
    note: Note | None

    @classmethod
    def parse(cls, fields: dict[str, Any], id: str) -> Record:
        status = _text(fields, "status")
        if status is None:
            raise _missing("status")
        if status not in STATUSES:
            raise _wrong("status", "one of the ten statuses")
        prev = _parse_prev(fields)
        if "updated" not in fields:
            raise _missing("updated")
        if not is_integer(fields["updated"], 0):
            raise _wrong("updated", "a Unix time in whole milliseconds")
        note = _parse_note(fields["note"]) if "note" in fields else None
        _check_trigger(fields)
        return cls(id, fields, status, prev, fields["updated"], note)

    def check_event(self) -> None:
        """Checks the fields that the status needs, given that the record is not an annotation."""
        if self.status == "COMPLETE" and "output" not in self.fields:
            raise _missing("output")
        if self.status in ("FAILED", "CANCELLED", "REJECTED", "TIMEOUT") and _text(self.fields, "error") is None:
            raise _missing("error")
        if self.status in ("INPUT_REQUIRED", "AUTH_REQUIRED"):
            _text(self.fields, "message")


def _parse_prev(fields: dict[str, Any]) -> str | None:
    value = fields.get("prev", _ABSENT)
    if value is _ABSENT:
        raise _missing("prev")
    if value is None:
        return None
    text = short_text(value)
    # Only the canonical spelling: the ID of this record depends on it.
    if text is None or record_id(text) != text:
        raise _wrong("prev", "null or `0x` and 64 lower-case hex digits")
    return text


def _check_trigger(fields: dict[str, Any]) -> None:
    if "trigger" not in fields:
        return
    trigger = fields["trigger"] if isinstance(fields["trigger"], dict) else {}
    is_message = short_text(trigger.get("messageId")) is not None
    if not is_message and record_id(short_text(trigger.get("control"))) is None:
        raise _wrong("trigger", "an object with a `messageId` or the `control` record")


def _parse_note(value: Any) -> Note:
    if not isinstance(value, dict):
        raise _wrong("note", "an object")
    kind = _text(value, "kind")
    if kind is None:
        raise _missing("note.kind")
    if kind not in _NOTES:
        raise _wrong("note.kind", "one of step, call, attempt, message, held, recovered")
    if kind in ("step", "call"):
        started = tuple(_parse_start(kind, entry) for entry in _list(value, "started"))
        ended = tuple(_parse_end(kind, entry) for entry in _list(value, "ended"))
        return Note(kind, started, ended)
    if kind == "held":
        return Note(kind, outcome=_parse_held(value["outcome"]) if "outcome" in value else None)
    if kind == "attempt":
        _number(value, "attempt", 1)
        for name in ("reason", "code", "by", "environment", "tier"):
            _text(value, name)
    if kind == "recovered":
        _number(value, "attempt", 1)
        _text(value, "reason")
        _number(value, "interruptions", 0)
    return Note(kind)


def _list(fields: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = fields.get(name, _ABSENT)
    if value is _ABSENT:
        return []
    if not isinstance(value, list):
        raise _wrong(name, "an array")
    if len(value) > max(STEPS_MAX, CALLS_MAX):
        raise _wrong(name, "at most one entry per step or call")
    if not all(isinstance(entry, dict) for entry in value):
        raise _wrong(name, "an array of objects")
    return value


def _number(fields: dict[str, Any], name: str, low: int) -> int | None:
    value = fields.get(name, _ABSENT)
    if value is _ABSENT:
        return None
    if not is_integer(value, low, _U32_MAX):
        raise _wrong(f"note.{name}", f"a whole number, {low} or more")
    return int(value)


def _subjob_number(kind: str, entry: dict[str, Any]) -> int:
    if kind == "step":
        if not is_integer(entry.get("step"), 0, STEPS_MAX - 1):
            raise _wrong("note.step", "the index of a step")
        return int(entry["step"])
    number = _number(entry, "call", 0)
    if number is None or number >= CALLS_MAX:
        raise _wrong("note.call", "the number of a call")
    return number


def _record_field(entry: dict[str, Any], name: str) -> str:
    found = record_id(_text(entry, "record"))
    if found is None:
        raise _wrong(name, "a record ID")
    return found


def _parse_start(kind: str, entry: dict[str, Any]) -> SubjobStart:
    job = job_id(_text(entry, "job"))
    key = ""
    is_detached = False
    if kind == "call":
        named = _text(entry, "key")
        if named is None:
            raise _missing("note.started.key")
        key = named
        if _text(entry, "op") is None:
            raise _missing("note.started.op")
        is_detached = entry.get("detached", False)
        if not isinstance(is_detached, bool):
            raise _wrong("note.started.detached", "true or false")
    number = _subjob_number(kind, entry)
    if job is None:
        raise _wrong("note.started.job", "a job ID")
    record = _record_field(entry, "note.started.record")
    venue = _text(entry, "venue") if kind == "step" else None
    return SubjobStart(number, job, record, venue, key, is_detached)


def _parse_end(kind: str, entry: dict[str, Any]) -> SubjobEnd:
    status = _text(entry, "status")
    if status not in STATUSES:
        raise _wrong("note.ended.status", "a status")
    if status not in ENDED:
        raise _wrong("note.ended.status", "a terminal status")
    record = _record_field(entry, "note.ended.record")
    return SubjobEnd(_subjob_number(kind, entry), str(status), record)


def _parse_held(value: Any) -> HeldOutcome:
    if not isinstance(value, dict):
        raise _wrong("note.outcome", "an object")
    status = _text(value, "status")
    if status not in STATUSES:
        raise _wrong("note.outcome.status", "a status")
    if status not in _HOLDABLE:
        raise _wrong("note.outcome.status", "a status that an operation can lead to")
    return HeldOutcome(str(status), value.get("output", _ABSENT), _text(value, "error"), _text(value, "message"))


# --------------------------------------------------------------------------------------------------------- sub-jobs


@dataclass
class Subjobs:
    """The steps or the calls of a job: each starts once and ends once."""

    link: str
    """`step` or `call`."""
    started: dict[int, SubjobStart] = field(default_factory=dict)
    ended: dict[int, SubjobEnd] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)

    def _refused(self, number: int, what: str) -> ChainError:
        return ChainError("commitment", f"{self.link} {number} {what}")

    def check(self, note: Note, is_outcome_held: bool) -> None:
        if is_outcome_held and note.started:
            raise self._refused(note.started[0].number, "starts although the job's outcome is already held")
        starting: set[int] = set()
        keys: set[str] = set()
        for at, start in enumerate(note.started):
            if self.link == "call":
                if start.number != len(self.started) + at:
                    raise self._refused(start.number, "is not the next call")
                if start.key in keys or start.key in self.keys:
                    raise self._refused(start.number, "has the key of an earlier call")
                keys.add(start.key)
            elif start.number in starting or start.number in self.started:
                raise self._refused(start.number, "starts a second time")
            starting.add(start.number)
        ending: set[int] = set()
        for end in note.ended:
            if end.number in ending or end.number in self.ended:
                raise self._refused(end.number, "ends a second time")
            if end.number not in self.started and end.number not in starting:
                raise self._refused(end.number, "ends without having started")
            ending.add(end.number)

    def check_complete(self) -> None:
        for number in sorted(self.started):
            end = self.ended.get(number)
            if end is None and not self.started[number].is_detached:
                raise ChainError("commitment", f"the job is COMPLETE, but {self.link} {number} has not ended")
            if self.link == "step" and end is not None and end.status != "COMPLETE":
                reason = f"the job is COMPLETE, but step {number} ended as {end.status}"
                raise ChainError("commitment", reason)

    def record(self, note: Note) -> None:
        for start in note.started:
            self.started[start.number] = start
            self.keys.add(start.key)
        for end in note.ended:
            self.ended[end.number] = end


# -------------------------------------------------------------------------------------------------------------- chain


class Chain:
    """The fold of the records so far."""

    def __init__(self, record: Record) -> None:
        if record.prev is not None:
            reason = f"`prev` of the first record must be null, but it names {record.prev}"
            raise ChainError("bad_start", reason)
        if record.status not in ("PENDING", "REJECTED"):
            raise ChainError("bad_start", f"a chain cannot start with status {record.status}")
        if record.note is not None:
            raise ChainError("bad_annotation", "the first record cannot be an annotation")
        record.check_event()
        fields = record.fields
        id = job_id(_required(fields, "id"))
        if id is None:
            raise _wrong("id", "a job ID")
        self.id = id
        self.venue = _required(fields, "venue")
        _required(fields, "op")
        _required(fields, "caller")
        _text(fields, "operation")
        if "created" not in fields:
            raise _missing("created")
        if not is_integer(fields["created"], 0, record.updated):
            raise _wrong("created", "a time that is not after `updated`")
        self.parent = _parse_parent(fields["parent"]) if "parent" in fields else None
        self.status = record.status
        self.first = self.head = record.id
        self.count = 1
        self.steps = Subjobs("step")
        self.calls = Subjobs("call")
        self.output: Any = fields.get("output", _ABSENT)
        self.due: HeldOutcome | None = None
        self._is_held = False
        self._held: HeldOutcome | None = None
        self._updated = record.updated
        self._identity = {name: fields[name] for name in _IDENTITY if name in fields}

    def follow(self, record: Record) -> None:
        """Checks the next record and applies it."""
        if record.prev != self.head:
            found = record.prev or "null"
            raise ChainError("broken_link", f"`prev` names {found}, but the previous record is {self.head}")
        if self.status in ENDED:
            reason = f"the job has already ended as {self.status}; no record may follow"
            raise ChainError("finality", reason)
        self._check_annotation(record)
        if record.note is None:
            if record.status != "PENDING":
                record.check_event()
            if record.status not in _NEXT[self.status]:
                raise ChainError("illegal_transition", f"status {record.status} cannot follow {self.status}")
        if record.updated < self._updated:
            reason = f"`updated` is {record.updated}, which is earlier than {self._updated} in the previous record"
            raise ChainError("time_reversed", reason)
        for name in _IDENTITY:
            if name in record.fields and not same(self._identity.get(name, _ABSENT), record.fields[name]):
                reason = f"`{name}` is part of the job's identity and cannot change"
                raise ChainError("binding", reason)
        self._check_due(record)
        self._check_commitments(record)
        self._apply(record)

    def _check_annotation(self, record: Record) -> None:
        note = record.note
        if note is None:
            if record.status == self.status:
                raise ChainError("bad_annotation", f"the record keeps status {self.status} but has no `note`")
            return
        if record.status != self.status:
            raise ChainError("bad_annotation", "a record that changes the status cannot have a `note`")
        if self.status not in _NOTES[note.kind]:
            reason = f"a note of kind {note.kind} is not allowed while the job is {self.status}"
            raise ChainError("bad_annotation", reason)
        is_interactive = self.status in ("INPUT_REQUIRED", "AUTH_REQUIRED")
        allowed = _ANNOTATION | ({"output"} if note.kind == "message" or is_interactive else set())
        others = sorted(set(record.fields) - allowed, key=key_hash)
        if others:
            raise ChainError("bad_annotation", f'a note of kind {note.kind} cannot set "{others[0]}"')

    def _check_due(self, record: Record) -> None:
        due = self.due
        if due is None:
            return
        carries = (
            record.note is None
            and record.status == due.status
            and same(record.fields.get("output", _ABSENT), due.output)
            and record.fields.get("error") == due.error
            and record.fields.get("message") == due.message
        )
        if not carries:
            reason = f"this record must carry the {due.status} outcome that was held during the pause"
            raise ChainError("illegal_transition", reason)

    def _check_commitments(self, record: Record) -> None:
        note = record.note
        if note is None:
            if record.status == "COMPLETE":
                self._check_complete()
        elif note.kind == "held":
            if self._held is not None:
                raise ChainError("bad_annotation", "an outcome is already held")
            if note.outcome is not None and note.outcome.status == "COMPLETE":
                self._check_complete()
        elif note.kind == "step":
            self.steps.check(note, self._held is not None)
        elif note.kind == "call":
            self.calls.check(note, self._held is not None)

    def _check_complete(self) -> None:
        self.steps.check_complete()
        self.calls.check_complete()

    def _apply(self, record: Record) -> None:
        self.due = None
        note = record.note
        if note is None:
            if self.status == "PAUSED" and record.status == "STARTED":
                self.due = self._held
            self._held = None
        elif note.kind == "step":
            self.steps.record(note)
        elif note.kind == "call":
            self.calls.record(note)
        elif note.kind == "held":
            self._held = note.outcome
        self.status = record.status
        self.head = record.id
        self._updated = record.updated
        self.output = record.fields.get("output", self.output)
        self.count += 1


def _required(fields: dict[str, Any], name: str) -> str:
    text = _text(fields, name)
    if text is None:
        raise _missing(name)
    return text


def _parse_parent(value: Any) -> tuple[str, str, int]:
    """The parent job, and which sub-job of it this is: `step` or `call`, and its number."""
    if not isinstance(value, dict):
        raise _wrong("parent", "an object")
    job = job_id(_text(value, "job"))
    if job is None:
        raise _wrong("parent", "an object with the `job` ID")
    for link in ("step", "call"):
        if is_integer(value.get(link), 0, _U32_MAX):
            return job, link, value[link]
    raise _wrong("parent", "an object with the index of a `step`")
