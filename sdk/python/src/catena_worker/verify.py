"""Verification: whether a history is complete, unchanged and follows the rules, without trusting the venue that sent it.

Everything is computed from the text of the history. `Verifier` takes the pages of one chain; `Client.verify` fetches them, and the
sub-jobs that the chain commits to.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NoReturn

from .cad003 import INTEGER_BYTES_MAX, value_id
from .chain import BadField, Chain, ChainError, Record, is_integer, job_id, record_id, same, short_text
from .errors import VerificationFailed
from .key import is_end_signed_by

INTEGER_DIGITS_MAX = 9_864
"""Most decimal digits of an integer of `INTEGER_BYTES_MAX` bytes."""


@dataclass(frozen=True)
class Report:
    """The result of a successful verification."""

    job: str
    venue: str
    status: str
    records: int
    first: str
    """ID of the first record."""
    head: str
    """ID of the last record."""
    subjobs_verified: int = 0
    subjobs_unavailable: int = 0
    """Sub-jobs that are no longer stored, or belong to another venue."""
    signatures_verified: int = 0
    """Ends that whoever ran the job has signed."""
    signatures_unchecked: int = 0
    """Signatures of another form."""


@dataclass(frozen=True)
class Subjob:
    """A job that a chain names as a part of it, and what it must be."""

    job: str
    is_remote: bool
    link: str
    """`step`, `call` or `reused`."""
    number: int
    first: str | None = None
    head: str | None = None
    status: str | None = None
    output: Any = field(default=None, repr=False)
    has_output: bool = False

    def check(self, parent: Chain, child: Chain) -> None:
        """Checks that a job that is valid in itself is the one that was named."""
        last = child.count - 1

        def refuse(record: int, reason: str) -> NoReturn:
            raise VerificationFailed("commitment", reason, record, self.job)

        if self.link == "reused":
            if child.head != self.head:
                refuse(last, f"the rerun committed to {self.head} as the last record")
            if child.status != "COMPLETE":
                refuse(last, f"the rerun reused its output, but it is {child.status}")
            if not self.is_remote and (child.parent is None or child.parent[1:] != ("step", self.number)):
                refuse(0, f"`parent` must name step {self.number} of the earlier run")
            if self.has_output and not same(self.output, child.output):
                refuse(last, "the rerun reused another output than this")
            return
        if child.first != self.first:
            refuse(0, f"the parent job committed to {self.first} as the first record")
        if not self.is_remote and child.parent != (parent.id, self.link, self.number):
            refuse(0, f"`parent` must name {self.link} {self.number} of job {parent.id}")
        if self.head is not None and child.head != self.head:
            refuse(last, f"the parent job committed to {self.head} as the last record")
        if self.status is not None and child.status != self.status:
            refuse(last, f"the parent job committed to {self.status} as the final status")


@dataclass
class Subjobs:
    """What was found in the sub-jobs of a job."""

    verified: int = 0
    unavailable: int = 0
    signatures_verified: int = 0
    signatures_unchecked: int = 0

    def add(self, report: Report) -> None:
        """Counts a sub-job that was verified, and its own."""
        self.verified += 1 + report.subjobs_verified
        self.unavailable += report.subjobs_unavailable
        self.signatures_verified += report.signatures_verified
        self.signatures_unchecked += report.signatures_unchecked


class Verifier:
    """Verifies one chain, page by page."""

    def __init__(self) -> None:
        self.chain: Chain | None = None
        self.signatures_verified = 0
        self.signatures_unchecked = 0
        self.total: int | None = None
        self.has_more = False
        """Whether the last page said that more records follow."""
        self._seen: dict[str, int] = {}
        self._reused: list[Subjob] = []
        self._closed: set[int] = set()

    @property
    def count(self) -> int:
        return len(self._seen)

    def push_page(self, text: bytes | str) -> int | None:
        """Checks the next page of a history, as it was received. Returns where the next page begins, `None` at the end."""
        page = parse(text)
        if not isinstance(page, dict):
            raise _malformed("not a history document: expected an object with `records`")
        if "records" not in page:
            raise _malformed("not a history document: `records` is missing")
        if not isinstance(page["records"], list):
            raise _malformed("not a history document: `records` must be an array")
        if "total" in page:
            if not is_integer(page["total"], 0):
                raise _malformed("not a history document: `total` must be a whole number of at least 0")
            self.total = page["total"]
        for entry in page["records"]:
            self.push(entry)
        following = page.get("next")
        self.has_more = following is not None
        return following if is_integer(following, 0) else None

    def push(self, entry: Any) -> None:
        """Checks the next entry `{id, record}`."""
        at = self.count
        if not isinstance(entry, dict):
            raise _malformed("expected an object with `id` and `record`", at)
        for name in ("id", "record"):
            if name not in entry:
                raise _malformed(f"`{name}` is missing", at)
        stated = short_text(entry["id"])
        if stated is None:
            raise _malformed("`id` must be a string", at)
        fields = entry["record"]
        if not isinstance(fields, dict):
            raise _malformed("`record` must be an object", at)
        found = value_id(fields)
        if stated != found:
            reason = f"the record is listed as {stated}, but its ID is {found}"
            raise VerificationFailed("hash_mismatch", reason, at)
        if found in self._seen:
            reason = f"the same record already occurs at index {self._seen[found]}"
            raise VerificationFailed("duplicate_record", reason, at)
        record = self._follow(fields, found, at)
        if at == 0:
            self._read_reused(record)
        elif record.note is not None and record.note.kind == "step":
            for start in record.note.started:
                if start.number in self._closed:
                    reason = f"step {start.number} starts although its output was reused"
                    raise VerificationFailed("commitment", reason, at)
        self._seen[found] = at
        if "signature" in entry:
            self._check_signature(fields, entry["signature"], at)

    def _check_signature(self, fields: dict[str, Any], signature: Any, at: int) -> None:
        """Checks the signature next to a record: whoever ended the job signed how it ended."""
        members = signature if isinstance(signature, dict) else {}
        ended = {"COMPLETE": "output", "FAILED": "error"}.get(fields["status"])
        assert self.chain is not None
        if ended is None or not is_integer(members.get("fence"), 0, 2**63 - 1) or "value" not in members:
            self.signatures_unchecked += 1
            return
        result = fields.get(ended)
        if ended == "error" and not isinstance(result, str):
            result = ""
        by = fields["by"] if isinstance(fields.get("by"), str) else ""
        value = members["value"] if isinstance(members["value"], str) else ""
        if not is_end_signed_by(by, value, self.chain.id, members["fence"], {ended: result}):
            signer = by or "nobody, whom the record names"
            raise VerificationFailed("signature", f"the signature of the end is not that of {signer}", at)
        self.signatures_verified += 1

    def _follow(self, fields: dict[str, Any], id: str, at: int) -> Record:
        try:
            record = Record.parse(fields, id)
        except BadField as error:
            raise VerificationFailed("malformed_record", str(error), at) from None
        try:
            if self.chain is None:
                self.chain = Chain(record)
            else:
                self.chain.follow(record)
        except BadField as error:
            raise VerificationFailed("bad_start" if at == 0 else "malformed_record", str(error), at) from None
        except ChainError as error:
            earlier = self._seen.get(record.prev or "")
            if error.code == "broken_link" and earlier is not None:
                reason = f"records {earlier + 1} and {at} both follow record {earlier}"
                raise VerificationFailed("fork", reason, at) from None
            raise VerificationFailed(error.code, str(error), at) from None
        return record

    def _read_reused(self, record: Record) -> None:
        """Reads what a rerun claims to have reused. Such steps must not start if the record carries their outputs."""
        outputs = record.fields.get("reusedOutputs")
        outputs = outputs if isinstance(outputs, list) else None
        entries = record.fields.get("reused")
        if not isinstance(entries, list):
            if outputs is not None:
                raise VerificationFailed("malformed_record", "`reusedOutputs` needs `reused`", 0)
            return
        if outputs is not None and len(outputs) != len(entries):
            reason = "`reusedOutputs` must have one output for each entry of `reused`"
            raise VerificationFailed("malformed_record", reason, 0)
        for at, entry in enumerate(entries):
            entry = entry if isinstance(entry, dict) else {}
            job = job_id(short_text(entry.get("job")))
            head = record_id(short_text(entry.get("record")))
            if job is None or head is None or not is_integer(entry.get("step"), 0, 2**32 - 1):
                if outputs is not None:
                    reason = "an entry of `reused` must have `step`, `job` and `record`"
                    raise VerificationFailed("malformed_record", reason, 0)
                continue
            step: int = entry["step"]
            if outputs is not None:
                if step in self._closed:
                    raise VerificationFailed("commitment", f"step {step} is in `reused` twice", 0)
                self._closed.add(step)
            output = None if outputs is None else outputs[at]
            is_remote = "venue" in entry
            self._reused.append(
                Subjob(job, is_remote, "reused", step, head=head, output=output, has_output=outputs is not None)
            )

    def finish(self, *, job: str | None = None, venue: str | None = None, head: str | None = None) -> Chain:
        """Checks that the chain is complete and is the one that was expected."""
        if self.total is not None and self.total != self.count:
            reason = f"the history has {self.count} of {self.total} records"
            raise VerificationFailed("incomplete", reason, min(self.count, self.total))
        if self.has_more:
            reason = f"the history has {self.count} records and says that more follow"
            raise VerificationFailed("incomplete", reason, self.count)
        chain = self.chain
        if chain is None:
            raise VerificationFailed("bad_start", "the history has no records")
        if chain.due is not None:
            reason = f"the job was resumed, but its held outcome {chain.due.status} is missing"
            raise VerificationFailed("incomplete", reason, chain.count)
        expected = {"job": (job_id(job) if job else None, chain.id), "venue": (venue, chain.venue), "head": (head, chain.head)}
        for what, (wanted, found) in expected.items():
            if wanted is not None and wanted != found:
                raise VerificationFailed("unexpected", f"expected {what} {wanted}, found {found}")
        return chain

    def subjobs(self) -> list[Subjob]:
        """The steps and calls that the chain commits to, and the jobs whose outputs it claims to have reused."""
        chain = self.chain
        if chain is None:
            return []
        found = []
        for subjobs in (chain.steps, chain.calls):
            for number, start in sorted(subjobs.started.items()):
                end = subjobs.ended.get(number)
                found.append(
                    Subjob(
                        start.job,
                        start.venue is not None,
                        subjobs.link,
                        number,
                        first=start.record,
                        head=end.record if end else None,
                        status=end.status if end else None,
                    )
                )
        return found + self._reused

    def report(self, subjobs: Subjobs | None = None) -> Report:
        """The report on a chain that is complete. Without `subjobs`, all of them count as unavailable."""
        subjobs = subjobs or Subjobs(unavailable=len(self.subjobs()))
        chain = self.chain
        assert chain is not None
        return Report(
            job=chain.id,
            venue=chain.venue,
            status=chain.status,
            records=chain.count,
            first=chain.first,
            head=chain.head,
            subjobs_verified=subjobs.verified,
            subjobs_unavailable=subjobs.unavailable,
            signatures_verified=subjobs.signatures_verified + self.signatures_verified,
            signatures_unchecked=subjobs.signatures_unchecked + self.signatures_unchecked,
        )


def verify_history(text: bytes | str, *, job: str | None = None, head: str | None = None) -> Report:
    """Verifies the text of one complete history, without its sub-jobs. Raises `VerificationFailed`."""
    verifier = Verifier()
    verifier.push_page(text)
    verifier.finish(job=job, head=head)
    return verifier.report()


def _malformed(reason: str, at: int | None = None) -> VerificationFailed:
    return VerificationFailed("malformed_history", reason, at)


# --------------------------------------------------------------------------------------------------------------- JSON


def parse(text: bytes | str) -> Any:
    """Reads JSON as a venue does: integers are exact, and what has no Value ID is refused."""
    try:
        plain = text.decode("utf-8") if isinstance(text, bytes) else text
        value = json.loads(plain, parse_int=_integer, parse_float=_double, parse_constant=_constant)
        if "\\ud" in plain.lower():
            _refuse_surrogates(value)
    except (ValueError, RecursionError) as error:
        raise VerificationFailed("invalid_json", f"invalid JSON: {error}") from None
    return value


def _integer(literal: str) -> int:
    if len(literal.lstrip("-")) > INTEGER_DIGITS_MAX:
        raise ValueError(f"integer of more than {INTEGER_BYTES_MAX} bytes")
    # `int` refuses more than 4,300 digits unless the process allows it.
    number = int(literal) if len(literal) < 4_000 else int(Decimal(literal))
    if not -(2 ** (8 * INTEGER_BYTES_MAX - 1)) <= number < 2 ** (8 * INTEGER_BYTES_MAX - 1):
        raise ValueError(f"integer of more than {INTEGER_BYTES_MAX} bytes")
    return number


def _double(literal: str) -> float:
    number = float(literal)
    if math.isinf(number):
        raise ValueError("number too large for a double")
    return number


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse_surrogates(value: Any) -> None:
    if isinstance(value, str):
        value.encode("utf-8")
    elif isinstance(value, list):
        for item in value:
            _refuse_surrogates(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            name.encode("utf-8")
            _refuse_surrogates(item)
