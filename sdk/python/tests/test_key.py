"""Keys: signatures against published vectors, identities, signed ends and the check of pushed jobs."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from catena_worker import Key, NotAuthentic, VerificationFailed, Worker, check_signature, receive
from catena_worker.ed25519 import is_signed_by, public_key, sign
from catena_worker.key import is_end_signed_by, public_key_of
from catena_worker.verify import verify_history
from fake_venue import FakeVenue
from test_verify import RUN, chain

# RFC 8032, section 7.1: secret key, public key, message, signature.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]
ORDER = 2**252 + 27742317777372353535851937790883648493


@pytest.mark.parametrize("seed, public, message, signature", VECTORS)
def test_signatures_are_those_of_the_published_vectors(seed: str, public: str, message: str, signature: str) -> None:
    plain, text, signed = bytes.fromhex(seed), bytes.fromhex(message), bytes.fromhex(signature)
    assert public_key(plain).hex() == public
    assert sign(plain, public_key(plain), text) == signed
    assert is_signed_by(bytes.fromhex(public), text, signed)
    assert not is_signed_by(bytes.fromhex(public), text + b"x", signed)
    assert not is_signed_by(public_key(b"2" * 32), text, signed)
    for at in (0, 31, 32, 63):
        changed = bytearray(signed)
        changed[at] ^= 1
        assert not is_signed_by(bytes.fromhex(public), text, bytes(changed)), at


def test_weak_keys_and_malleable_signatures_are_refused() -> None:
    seed, public, message, signature = (bytes.fromhex(text) for text in VECTORS[1])
    response = int.from_bytes(signature[32:], "little") + ORDER
    assert not is_signed_by(public, message, signature[:32] + response.to_bytes(32, "little"))
    assert not is_signed_by(b"\1" + bytes(31), message, b"\1" + bytes(63)), "the identity signs everything"
    assert not is_signed_by(b"\xff" * 32, message, signature)
    assert not is_signed_by(public, message, b"")


def test_a_did_has_the_key_and_nothing_else_is_one(tmp_path: Path) -> None:
    key = Key(b"\1" * 32)
    assert key.did == "did:key:z6Mkon3Necd6NkkyfoGoHxid2znGc59LU3K7mubaRcFbLfLX"
    assert public_key_of(key.did) == key.public
    for other in ("", "did:web:x.example", "did:key:z", key.did + "1", key.did[:-1], "did:key:z0" + key.did[10:]):
        assert public_key_of(other) is None, other
    file = tmp_path / "key"
    for data in (b"\1" * 32, b"01" * 32 + b"\n"):
        file.write_bytes(data)
        assert Key.from_file(file).did == key.did
    file.write_bytes(b"short")
    with pytest.raises(ValueError, match="is not a key"):
        Key.from_file(file)
    assert Key.generate().did != Key.generate().did
    assert "\1" not in repr(key) and "0101" not in repr(key)


def signed_history(key: Key, *, by: str | None = None, fence: int = 3) -> dict[str, Any]:
    history = chain(*RUN[:-1], {**RUN[-1], "by": by or key.did})
    job = history["records"][0]["record"]["id"]
    value = key.sign_end(job, fence, {"output": RUN[-1]["output"]})
    history["records"][-1]["signature"] = {"fence": fence, "value": value}
    return history


def test_the_signature_of_an_end_is_verified() -> None:
    key = Key(b"\1" * 32)
    report = verify_history(json.dumps(signed_history(key)))
    assert (report.signatures_verified, report.signatures_unchecked) == (1, 0)
    last = len(RUN) - 1
    for history in (
        signed_history(key, by=Key(b"\2" * 32).did),
        signed_history(key, by="did:web:x.example"),
        {**signed_history(key), "records": [*signed_history(key)["records"][:-1], moved(signed_history(key), {"fence": 4})]},
    ):
        with pytest.raises(VerificationFailed) as failed:
            verify_history(json.dumps(history))
        assert (failed.value.code, failed.value.record) == ("signature", last)
    history = signed_history(key)
    history["records"][-1]["signature"] = {"kind": "of the future"}
    report = verify_history(json.dumps(history))
    assert (report.signatures_verified, report.signatures_unchecked) == (0, 1)


def moved(history: dict[str, Any], members: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = history["records"][-1]
    return {**entry, "signature": {**entry["signature"], **members}}


def test_a_worker_with_a_key_signs_outputs_and_errors() -> None:
    key = Key(b"\1" * 32)
    with FakeVenue() as venue:
        worker = Worker(venue.url, token="t", key=key, name="w")

        @worker.operation(name="half")
        def half(number: int) -> float:
            return number / 2 if number else [][0]

        async def serve() -> None:
            serving = asyncio.ensure_future(worker.serve())
            await asyncio.to_thread(venue.wait, lambda: "half" in venue.operations)
            jobs = [venue.invoke("o/half", {"number": number}) for number in (4, 0)]
            for job in jobs:
                await asyncio.to_thread(venue.wait_for, job)
            worker.stop()
            await serving
            done, failed = jobs
            assert done.status == "COMPLETE" and failed.status == "FAILED"
            for job, name in ((done, "output"), (failed, "error")):
                (end,) = job.ends
                result = {name: end[name]}
                assert is_end_signed_by(key.did, end["signature"], job.id, end["fence"], result)
                assert not is_end_signed_by(key.did, end["signature"], job.id, end["fence"] + 1, result)

        asyncio.run(serve())


def pushed(key: Key, *, at: int = 1_000, body: bytes | None = None) -> tuple[dict[str, str], bytes]:
    document = {"id": "0x1", "fence": 2, "attempt": 1, "op": "o/mail", "input": {"to": "ann"}, "token": "t", "steps": []}
    body = body or json.dumps(document).encode()
    signature = base64.b64encode(key.sign(f"0x1-1.{at}.".encode() + body)).decode()
    headers = {"Webhook-Id": "0x1-1", "Webhook-Timestamp": str(at), "Webhook-Signature": f"v1,c2hhcmVk v1a,{signature}"}
    return headers, body


def test_a_pushed_job_is_received_only_from_its_venue() -> None:
    key = Key(b"\1" * 32)
    headers, body = pushed(key)
    job = receive(key.did, headers, body, now=1_200)
    assert (job.claim.id, job.claim.fence, job.claim.input, job.token) == ("0x1", 2, {"to": "ann"}, "t")
    refused: list[tuple[str, dict[str, str], bytes, float]] = [
        (Key(b"\2" * 32).did, headers, body, 1_200),
        (key.did, headers, body + b" ", 1_200),
        (key.did, headers, body, 1_301),
        (key.did, headers, body, 699),
        (key.did, {**headers, "Webhook-Timestamp": "1001"}, body, 1_200),
        (key.did, {**headers, "Webhook-Timestamp": "soon"}, body, 1_200),
        (key.did, {**headers, "Webhook-Id": "0x1-2"}, body, 1_200),
        (key.did, {**headers, "Webhook-Signature": "v1a,%%%"}, body, 1_200),
        (key.did, {**headers, "Webhook-Signature": headers["Webhook-Signature"].replace("v1a", "v1")}, body, 1_200),
        (key.did, {}, body, 1_200),
    ]
    for venue, sent, text, now in refused:
        with pytest.raises(NotAuthentic):
            receive(venue, sent, text, now=now)
    headers, body = pushed(key, body=b"[]")
    check_signature(key.did, headers, body, now=1_200)
    with pytest.raises(NotAuthentic, match="not a job"):
        receive(key.did, headers, body, now=1_200)
    with pytest.raises(ValueError, match="did:key"):
        receive("did:web:x.example", headers, body)
