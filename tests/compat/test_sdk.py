"""Methods of the SDK that its own live tests do not cover.

Streams, messages, pause and resume, private runs, back-pressure, identities, errors. Runs against
``COVIA_VENUE_URL``; ``CATENA_LIMITED_URL`` is a venue that takes two requests per second.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import time
import uuid

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import covia.async_api
from covia import (
    Agent,
    AgentManager,
    Asset,
    AssetNotFoundError,
    ChatSession,
    Grid,
    GridError,
    Job,
    JobFailedError,
    JobNotFoundError,
    JobStatus,
    RateLimitError,
    SecretManager,
    UCANManager,
    Venue,
    WorkspaceManager,
    did_for,
    grant,
)
from covia.async_api import AsyncGrid
from covia.auth import BearerAuth, Ed25519Auth

URL = os.environ["COVIA_VENUE_URL"]
LIMITED_URL = os.environ["CATENA_LIMITED_URL"]
TIMEOUT_S = 20


@pytest.fixture
def venue():
    with Grid.connect(URL) as venue:
        yield venue


def connect_with_key():
    """A connection that is authenticated with a new key."""
    return Grid.connect(URL, auth=Ed25519Auth(Ed25519PrivateKey.generate()))


def until(job, status):
    """Polls a job until it has this status."""
    end = time.monotonic() + TIMEOUT_S
    while job.status != status:
        assert time.monotonic() < end, f"waited too long for {status}: {job.data}"
        job.refresh()
    return job


def test_an_instant_job_is_complete_in_the_answer(venue):
    job = venue.invoke("v/test/ops/echo", {"text": "hello"})
    assert job.is_complete and job.output == {"text": "hello"}
    assert job.data.input == {"text": "hello"}
    assert job.data.op == "v/test/ops/echo"
    assert job.id.startswith("0x") and len(job.id) == 34


def test_a_failed_job_says_why(venue):
    job = venue.invoke("v/test/ops/error", {"message": "out of cheese"})
    with pytest.raises(JobFailedError) as caught:
        job.result(timeout=TIMEOUT_S)
    assert caught.value.job_data.error == "out of cheese"
    assert caught.value.job_data.status == JobStatus.FAILED


def test_input_that_breaks_the_schema_is_a_rejected_job(venue):
    job = venue.invoke("v/test/ops/error", {"message": 5})
    assert job.status == JobStatus.REJECTED and job.error
    with pytest.raises(GridError) as caught:
        venue.run("v/test/ops/error", {"message": 5})
    assert caught.value.status_code == 400


def test_an_unknown_operation_is_refused_with_what_is_near(venue):
    before = len(venue.list_jobs())
    with pytest.raises(GridError) as caught:
        venue.invoke("v/test/ops/ecko", {})
    assert caught.value.status_code == 400
    assert "v/test/ops/echo" in caught.value.response_body["nearest"]
    assert len(venue.list_jobs()) == before


def test_a_stream_shows_each_record_and_ends(venue):
    job = venue.invoke("v/test/ops/chat", {})
    until(job, JobStatus.INPUT_REQUIRED)
    seen = []
    for event in job.stream():
        assert event.event == "job-update"
        assert event.json["id"] == job.id
        seen.append((int(event.id), event.json["status"]))
        if len(seen) == 1:
            job.send_message({"content": "hi"})
        elif event.json["status"] == "INPUT_REQUIRED":
            job.send_message({"content": "done"})
    assert seen == [
        (2, "INPUT_REQUIRED"),
        (3, "STARTED"),
        (4, "INPUT_REQUIRED"),
        (5, "STARTED"),
        (6, "COMPLETE"),
    ]


async def test_an_asynchronous_stream_ends_with_the_last_record():
    async with AsyncGrid.connect(URL) as venue:
        job = await venue.invoke("v/test/ops/delay", {"delay": 200, "input": 7})
        events = [event async for event in job.stream()]
        assert events[-1].json["status"] == "COMPLETE"
        assert events[-1].json["output"] == 7


def test_a_stream_of_another_owner_is_refused_without_a_token():
    # The SDK sends no token for streams, so it cannot follow the job of a key: a documented limit.
    with connect_with_key() as venue:
        job = venue.invoke("v/test/ops/never", {})
        with pytest.raises(Exception, match="(?i)content-type|404"):
            list(job.stream())
        job.cancel()


def test_messages_are_acknowledged_and_taken_in_order(venue):
    job = until(venue.invoke("v/test/ops/chat", {}), JobStatus.INPUT_REQUIRED)
    assert job.needs_input and job.is_paused
    first = job.send_message({"messageId": "m1", "content": "one"})
    assert (first["id"], first["queued"], first["messageId"]) == (job.id, True, "m1")
    assert first["queueDepth"] >= 0
    again = job.send_message({"messageId": "m1", "content": "one"})
    assert again["duplicate"] is True
    job.send_message("two")
    job.send_message({"content": "done"})
    assert job.result(timeout=TIMEOUT_S) == {"echo": {"content": "done"}, "message": "done"}
    with pytest.raises(GridError) as caught:
        job.send_message("late")
    assert caught.value.status_code == 409


def test_authorisation_is_asked_for_and_its_credentials_are_not_kept(venue):
    job = until(venue.invoke("v/test/ops/auth", {}), JobStatus.AUTH_REQUIRED)
    assert job.needs_auth
    secret = uuid.uuid4().hex
    job.send_message({"type": "auth/complete", "credentials": {"apiKey": secret}})
    assert job.result(timeout=TIMEOUT_S) == {"authorised": True}
    assert secret not in str(job.data)


def test_a_job_is_paused_and_resumed(venue):
    job = venue.invoke("v/test/ops/delay", {"delay": 300, "input": "there"})
    job.pause()
    assert job.status == JobStatus.PAUSED
    with pytest.raises(GridError) as caught:
        job.pause()
    assert caught.value.status_code == 409
    job.resume()
    assert job.status in (JobStatus.STARTED, JobStatus.COMPLETE)
    assert job.result(timeout=TIMEOUT_S) == "there"
    with pytest.raises(GridError) as caught:
        job.resume()
    assert caught.value.status_code == 409


def test_a_job_is_cancelled_with_a_reason_once(venue):
    job = venue.invoke("v/test/ops/never", {})
    job.cancel(reason="enough")
    assert job.status == JobStatus.CANCELLED and "enough" in (job.error or "")
    job.cancel(reason="again")
    assert job.status == JobStatus.CANCELLED and "again" not in (job.error or "")


def test_a_deleted_job_is_gone(venue):
    job = venue.invoke("v/test/ops/echo", 1)
    assert job.id.removeprefix("0x") in venue.list_jobs()
    venue.delete_job(job.id)
    assert job.id.removeprefix("0x") not in venue.list_jobs()
    # Its owner is told that it was deleted (410), which the SDK has no error of its own for.
    with pytest.raises(GridError, match="was deleted"):
        venue.get_job(job.id)


def test_private_runs_leave_nothing_behind(venue):
    before = venue.list_jobs()
    assert venue.run("v/test/ops/echo", {"secret": 1}, private=True) == {"secret": 1}
    venue.set_private(True)
    assert venue.run("v/test/ops/delay", {"delay": 1, "input": 2}) == 2
    venue.set_private(False)
    assert venue.list_jobs() == before
    venue.run("v/test/ops/echo", {"open": 1})
    assert len(venue.list_jobs()) == len(before) + 1


def test_a_run_answers_with_the_bare_output(venue):
    for value in (None, True, 1, 1.0, "text", [1, [2]], {"a": {"b": None}}):
        output = venue.run("v/test/ops/echo", value)
        assert output == value and type(output) is type(value)
    with pytest.raises(GridError) as caught:
        venue.run("v/test/ops/error", {"message": "no"})
    assert (caught.value.status_code, caught.value.message) == (422, "no")


def test_too_many_requests_are_retried_until_they_are_few_enough():
    with Grid.connect(LIMITED_URL) as venue:
        # Twice as many as may come at once: without retries some would fail.
        outputs = [venue.run("v/test/ops/echo", number) for number in range(5)]
        assert outputs == list(range(5))
        # Each took one job and no more, whatever was refused in between.
        assert len(venue.list_jobs()) == 5


def test_an_exhausted_retry_is_a_rate_limit_error(monkeypatch):
    monkeypatch.setattr("covia._retry.MAX_ATTEMPTS", 1)
    monkeypatch.setattr("covia._client.retry_delay_ms", lambda *_: -1)
    with Grid.connect(LIMITED_URL) as venue, pytest.raises(RateLimitError) as caught:
        for number in range(50):
            venue.run("v/test/ops/echo", number)
    assert caught.value.retry_after_seconds >= 1


def test_jobs_belong_to_their_callers():
    with connect_with_key() as alice, connect_with_key() as bob, Grid.connect(URL) as anonymous:
        job = alice.invoke("v/test/ops/echo", {"mine": True})
        assert alice.get_job(job.id).output == {"mine": True}
        assert alice.list_jobs() == [job.id.removeprefix("0x")]
        assert bob.list_jobs() == []
        for other in (bob, anonymous):
            for deed in (other.get_job, other.cancel_job, other.pause_job, other.delete_job):
                with pytest.raises(JobNotFoundError):
                    deed(job.id)
        who = alice.run("v/ops/auth/whoami", {})
        assert who["caller"].startswith("did:key:") and who["authenticated"] is True
    with Grid.connect(URL, auth=BearerAuth("not.a.token")) as liar:
        with pytest.raises(GridError) as caught:
            liar.list_jobs()
        assert caught.value.status_code == 401


def test_the_catalogue_and_assets_are_what_their_ids_say(venue):
    page = venue.list_assets(kind="operation", limit=1)
    asset = venue.get_asset(page.items[0])
    assert asset.id == page.items[0].rsplit("/", 1)[-1] and asset.is_operation
    operations = venue.get_adapter_operations("test")
    assert any(meta["operation"]["adapter"] == "test:echo" for meta in operations.values())
    content = uuid.uuid4().bytes
    digest = hashlib.sha256(content).hexdigest()
    metadata = {"name": "bytes", "content": {"sha256": digest, "contentType": "application/octet-stream"}}
    registered = venue.register(metadata)
    assert registered.metadata == metadata
    with pytest.raises(GridError) as caught:
        registered.put_content(b"other bytes")
    assert caught.value.status_code == 400
    registered.put_content(content)
    assert registered.get_content() == content
    with pytest.raises(AssetNotFoundError):
        venue.get_asset("0" * 64)


def test_every_method_of_the_workspace_manager_works():
    with connect_with_key() as venue:
        workspace = venue.workspace
        written = workspace.write("w/notes/first", {"kind": "note", "n": 1})
        assert written.existed is False and written.pathCreated is True
        assert workspace.write("/w/notes/second", {"kind": "todo"}).existed is False
        assert workspace.write("w/notes/none", None).existed is False
        read = workspace.read("w/notes/first")
        assert read.exists and read.value == {"kind": "note", "n": 1} and read.valueBytes > 0
        assert workspace.read("w/notes/none").exists and workspace.read("w/notes/none").value is None
        truncated = workspace.read("w/notes", max_size=3)
        assert truncated.exists and truncated.truncated and truncated.value is None
        appended = workspace.append("w/list", "a")
        assert (appended.existed, appended.index, appended.newSize) == (False, 0, 1)
        assert workspace.append("w/list", "b").index == 1
        assert workspace.copy("w/list", "w/copy").existed is False
        listed = workspace.list("w/notes")
        assert set(listed.keys) == {"first", "second", "none"} and listed.count == 3
        assert workspace.list("w/absent").exists is False
        assert "w" in workspace.list().keys
        assert workspace.slice("w/list", offset=1).values == ["b"]
        assert workspace.slice("w/copy", limit=1).values == ["a"]
        assert {entry["key"] for entry in workspace.slice("w/notes").values} == set(listed.keys)
        assert "note" in workspace.inspect("w/notes/first", compact=True).result
        assert set(workspace.inspect(["w/list", "w/copy"]).result) == {"w/list", "w/copy"}
        assert workspace.count("w/notes").count == 3
        assert workspace.count("w/absent").exists is False
        groups = workspace.aggregate("w/notes", group_by="kind").groups
        assert {name: group.count for name, group in groups.items()} == {"note": 1, "todo": 1, "null": 1}
        assert workspace.delete("w/notes/first").deleted is True
        assert workspace.delete("w/notes/first").deleted is False
        with pytest.raises(GridError):
            workspace.write("s/KEY", 1)
        # An operation under a name of one's own.
        workspace.copy("v/test/ops/echo", "o/mine")
        assert venue.run("o/mine", {"x": 1}) == {"x": 1}


async def test_the_async_workspace_manager_works():
    async with AsyncGrid.connect(URL, auth=Ed25519Auth(Ed25519PrivateKey.generate())) as venue:
        workspace = venue.workspace
        assert (await workspace.write("w/a/b", [1, 2])).pathCreated is True
        assert (await workspace.read("w/a/b/1")).value == 2
        assert (await workspace.append("w/a/b", 3)).newSize == 3
        assert (await workspace.slice("w/a/b")).values == [1, 2, 3]
        assert (await workspace.list("w/a")).keys == ["b"]
        assert (await workspace.count("w/a", depth=2)).count == 3
        assert (await workspace.delete("w/a")).deleted is True
        assert (await workspace.read("w/a")).exists is False


def test_the_agents_manager_works():
    with connect_with_key() as venue:
        agents = venue.agents
        config = {"operation": "v/test/ops/tally"}
        created = agents.create("helper", config=config)
        assert (created.agentId, created.status, created.created) == ("helper", "SLEEPING", True)
        assert agents.create("helper", config=[config]).created is False
        assert agents.message("helper", {"text": "hello"}).delivered is True
        triggered = agents.trigger("helper")
        assert triggered.status == "SLEEPING"
        assert triggered.result == {"seen": [{"text": "hello"}]}
        answer = agents.request("helper", {"q": 1})
        assert (answer.status, answer.output) == ("COMPLETE", {"seen": [{"q": 1}]})
        assert answer.id and answer.sessionId
        chat = agents.chat("helper", "hi")
        assert chat.response == {"seen": ["hi"]}
        assert agents.chat("helper", "again", chat.sessionId).sessionId == chat.sessionId
        with pytest.raises(GridError):
            agents.chat("helper", "who?", "unknown")
        assert agents.rename_session("helper", chat.sessionId, "First").title == "First"
        sessions = agents.sessions("helper")
        assert sessions.total == 2
        assert sessions.sessions[0].sessionId == chat.sessionId
        info = agents.info("helper")
        assert (info.status, info.timelineLength, info.tasks, info.config) == ("SLEEPING", 4, 0, config)
        with pytest.raises(GridError) as missing:
            agents.info("absent")
        assert missing.value.status_code == 404
        assert [agent.agentId for agent in agents.list().agents] == ["helper"]
        forked = agents.fork("helper", "copy", include_timeline=True)
        assert (forked.created, forked.forkedFrom) == (True, "helper")
        assert agents.update("copy", config={"extra": 1}, state={"m": 2})["status"] == "SLEEPING"
        assert venue.workspace.read("g/copy/state").value == {"n": 4, "m": 2}
        assert agents.suspend("copy").status == "SUSPENDED"
        assert agents.resume("copy", auto_wake=False).status == "SLEEPING"
        assert agents.delete("copy").status == "TERMINATED"
        assert [agent.agentId for agent in agents.list(include_terminated=True).agents] == ["copy", "helper"]
        removed = agents.delete("copy", remove=True)
        assert (removed.status, removed.removed) == ("TERMINATED", True)


def test_conversations_of_the_agents_manager_work():
    with connect_with_key() as venue:
        agents = venue.agents
        config = {"operation": "v/ops/llm/agent", "llmOperation": "v/test/ops/llm", "systemPrompt": "Repeat."}
        agents.create("talker", config=config)
        chat = agents.chat("talker", "one")
        assert chat.response == "one"
        session = chat.sessionId
        agents.chat("talker", "two", session)
        read = agents.read_session("talker", session, max_turns=1)
        assert (read.found, read.truncated, read.turnCount) == (True, True, 2)
        assert [message["content"] for message in read.messages] == ["two", "two"]
        assert agents.read_session("talker", "unknown").found is False
        assert "Repeat." in agents.context("talker", task="T")
        assert agents.reload_context("talker", session).reloaded is True
        compacted = agents.compact_session("talker", session, "they counted")
        assert (compacted.compacted, compacted.archivedTurns) == (True, 2)
        assert agents.delete_session("talker", session).deleted is True
        assert agents.sessions("talker").total == 0
        for end in (lambda: agents.complete_task({"a": 1}), lambda: agents.fail_task("no")):
            with pytest.raises(GridError):
                end()


def test_a_request_to_an_agent_can_be_cancelled():
    with connect_with_key() as venue:
        agents = venue.agents
        agents.create("slow", config={"operation": "v/test/ops/slowtally"})
        answer = agents.request("slow", {"delay": 3600000}, wait=False)
        assert answer.status in ("PENDING", "STARTED")
        job = venue.get_job(answer.id)
        until(job, JobStatus.STARTED)
        assert agents.cancel_task("slow", answer.id).cancelled is True
        assert agents.info("slow").status == "SUSPENDED"


def test_every_method_of_the_secrets_manager_works():
    key = Ed25519PrivateKey.generate()
    with Grid.connect(URL, auth=Ed25519Auth(key)) as venue:
        secrets = venue.secrets
        assert secrets.list() == [] and venue.list_secrets() == []
        stored = secrets.set("API_KEY", "first")
        assert (stored.name, stored.stored) == ("API_KEY", True)
        assert secrets.set("API_KEY", "second", overwrite=True).stored is True
        secrets.set("OTHER", "x")
        assert sorted(secrets.list()) == ["API_KEY", "OTHER"]
        with pytest.raises(GridError) as denied:
            secrets.extract("API_KEY")
        assert denied.value.status_code == 403 and "Capability denied" in str(denied.value)
        secrets.delete("API_KEY")
        venue.delete_secret("OTHER")
        assert secrets.list() == []


def test_a_secret_is_extracted_under_an_express_delegation():
    key = Ed25519PrivateKey.generate()
    own = did_for(key)
    with Grid.connect(URL, auth=Ed25519Auth(key)) as venue:
        venue.secrets.set("K", "the value")
        token = grant(key, own, f"{own}/s/K", "secret/extract", 300)
        extracted = venue.secrets.extract("K", ucans=[token])
        assert (extracted.name, extracted.value) == ("K", "the value")


async def test_the_async_secrets_manager_works():
    async with AsyncGrid.connect(URL, auth=Ed25519Auth(Ed25519PrivateKey.generate())) as venue:
        assert (await venue.secrets.set("A", "x")).stored is True
        assert await venue.secrets.list() == ["A"] and await venue.list_secrets() == ["A"]
        with pytest.raises(GridError):
            await venue.secrets.extract("A")
        await venue.secrets.delete("A")
        assert await venue.secrets.list() == []
        await venue.secrets.set("B", "y")
        await venue.delete_secret("B")
        assert await venue.list_secrets() == []


def test_every_method_of_the_ucan_manager_works():
    owner, other = Ed25519PrivateKey.generate(), did_for(Ed25519PrivateKey.generate())
    resource = f"{did_for(owner)}/w/shared"
    with Grid.connect(URL, auth=Ed25519Auth(owner)) as venue:
        expiry = int(time.time()) + 300
        issued = venue.ucan.issue(other, [{"with": resource, "can": "crud/read"}], expiry)
        verified = venue.ucan.verify(issued.token, with_=f"{resource}/a", can="crud/read", aud=other)
        assert verified.valid and verified.authorises is True
        assert (verified.aud, verified.exp) == (other, expiry)
        wider = venue.ucan.verify(issued.token, with_=f"{did_for(owner)}/w/else", can="crud/read")
        assert wider.authorises is False
        assert venue.ucan.verify("not.a.token").valid is False
        signed = grant(owner, other, resource, "crud/read", 300)
        assert venue.ucan.verify(signed, aud=other).valid
        with pytest.raises(GridError):
            venue.ucan.issue(other, [{"with": f"{other}/w", "can": "crud/read"}], expiry)


async def test_the_async_ucan_manager_works():
    key = Ed25519PrivateKey.generate()
    async with AsyncGrid.connect(URL, auth=Ed25519Auth(key)) as venue:
        attenuations = [{"with": f"{did_for(key)}/w/a", "can": "crud/read"}]
        issued = await venue.ucan.issue("did:key:zOther", attenuations, int(time.time()) + 60)
        assert (await venue.ucan.verify(issued.token)).valid


def test_assets_are_registered_pinned_and_run():
    with connect_with_key() as venue:
        asset = venue.register({"name": "notes", "content": {"contentType": "text/plain"}})
        venue.put_asset_content(asset.id, b"hello")
        assert venue.get_asset_content(asset.id) == b"hello"
        assert asset.did_url is None or asset.id in asset.did_url
        venue.workspace.copy("v/test/ops/echo", "w/definition")
        pinned = venue.pin_asset("w/definition")
        operation = venue.get_asset(pinned.hash)
        assert operation.run({"x": 1}) == {"x": 1}
        job = operation.invoke({"x": 2})
        job.wait(timeout=TIMEOUT_S)
        assert job.output == {"x": 2}
        assert venue.list_assets(kind="data", limit=1).total >= 1
        assert venue.get_operation("test:echo") is not None
        assert len(venue.list_operations()) > 20


async def test_the_async_venue_works():
    async with AsyncGrid.connect(URL, auth=Ed25519Auth(Ed25519PrivateKey.generate())) as venue:
        assert (await venue.wait_until_ready(timeout=5)).status == "OK"
        assert (await venue.get_did()) == (await venue.status()).did == (await venue.did_document()).id
        asset = await venue.register({"name": "async", "content": {}})
        await venue.put_asset_content(asset.id, b"bytes")
        assert await venue.get_asset_content(asset.id) == b"bytes" == await asset.get_content()
        assert asset.id in await asset.did_url()
        other = await venue.register({"name": "async content", "content": {}})
        await other.put_content(b"other bytes")
        assert await other.get_content() == b"other bytes"
        workspace = venue.workspace
        await workspace.write("w/list", [{"k": "a"}, {"k": "b"}])
        assert (await workspace.copy("w/list", "w/copy")).existed is False
        assert "a" in (await workspace.inspect("w/copy")).result
        assert set((await workspace.aggregate("w/copy", group_by="k")).groups) == {"a", "b"}
        assert (await venue.pin_asset("v/test/ops/echo")).hash
        operation = await venue.get_asset("v/test/ops/echo")
        assert operation.is_operation and await operation.run({"x": 1}) == {"x": 1}
        invoked = await operation.invoke({"x": 2})
        await invoked.wait(timeout=TIMEOUT_S)
        assert invoked.output == {"x": 2}
        assert (await venue.get_operation("test:echo")) is not None
        assert await venue.list_operations() and await venue.get_adapter_operations("test")
        assert await venue.run("v/test/ops/echo", 1) == 1
        job = await venue.invoke("v/test/ops/never", {})
        assert (await venue.get_job(job.id)).id == job.id
        await venue.pause_job(job.id)
        await venue.resume_job(job.id)
        await venue.cancel_job(job.id)
        await job.refresh()
        assert job.status == JobStatus.CANCELLED
        assert (await venue.list_assets(limit=1)).total > 0 and await venue.list_jobs()
        await venue.delete_job(job.id)
        assert (await venue.mcp_discovery()).server_url.endswith("/mcp")


def test_the_venue_describes_itself(venue):
    assert venue.wait_until_ready(timeout=5).status == "OK"
    assert venue.did == venue.status().did == venue.did_document().id
    assert venue.url.rstrip("/") == URL.rstrip("/")
    assert venue.mcp_discovery().server_url == f"{URL}/mcp"
    venue.set_private(True)
    assert venue.run("v/test/ops/echo", 1) == 1
    venue.set_private(False)


TABLE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "reference" / "covia.md"


def test_the_table_of_methods_has_every_public_method():
    """``docs/reference/covia.md`` has one row per public method, and each row names tests that exist."""
    classes = [Agent, Asset, ChatSession, AgentManager, Grid, Job, SecretManager, UCANManager, Venue, WorkspaceManager]
    asynchronous = [getattr(covia.async_api, f"Async{one.__name__}") for one in classes]
    found = set()
    for one in [*classes, *asynchronous]:
        found |= {f"{one.__name__}.{name}" for name in vars(one) if not name.startswith("_")}
    rows = [line.split("|")[1:-1] for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    named = set()
    for methods, works, tests in rows:
        named |= set(re.findall(r"`([A-Za-z]+\.[a-z_]+)`", methods))
        assert works.strip() in ("yes", "no"), methods
        for test in re.findall(r"`(test_[a-z_]+)`", tests):
            assert test in globals(), f"{methods}: there is no {test}"
        assert works.strip() == "no" or "`test_" in tests or "integration" in tests or "examples" in tests, methods
    assert named == found, f"missing {found - named}, unknown {named - found}"


def test_jobs_are_controlled_by_their_ids(venue):
    job = venue.invoke("v/test/ops/chat", {})
    until(job, JobStatus.INPUT_REQUIRED)
    assert venue.get_job(job.id).id == job.id and venue.list_jobs()
    venue.send_job_message(job.id, {"content": "done"})
    until(job, JobStatus.COMPLETE)
    assert [event for event in venue.stream_job_events(job.id)]
    other = venue.invoke("v/test/ops/never", {})
    venue.pause_job(other.id)
    assert until(other, JobStatus.PAUSED).is_paused
    venue.resume_job(other.id)
    venue.cancel_job(other.id)
    until(other, JobStatus.CANCELLED)
    venue.delete_job(other.id)
    with pytest.raises(GridError):
        venue.get_job(other.id)


async def test_an_async_job_is_controlled():
    async with AsyncGrid.connect(URL) as venue:
        job = await venue.invoke("v/test/ops/chat", {})
        end = time.monotonic() + TIMEOUT_S
        while not job.needs_input:
            assert time.monotonic() < end
            await job.refresh()
        assert not job.needs_auth and not job.is_finished and job.is_paused
        await job.send_message({"content": "done"})
        await job.wait(timeout=TIMEOUT_S)
        assert job.is_complete and job.error is None and job.data.id == job.id
        assert await job.result() == job.output
        other = await venue.invoke("v/test/ops/never", {})
        await other.pause()
        await other.resume()
        await other.cancel()
        await other.refresh()
        assert other.status == JobStatus.CANCELLED
        message = await venue.invoke("v/test/ops/chat", {})
        await venue.send_job_message(message.id, {"content": "done"})
        await message.wait(timeout=TIMEOUT_S)
        assert message.is_complete


async def test_the_async_agents_manager_works():
    async with AsyncGrid.connect(URL, auth=Ed25519Auth(Ed25519PrivateKey.generate())) as venue:
        agents = venue.agents
        config = {"operation": "v/test/ops/tally"}
        assert (await agents.create("helper", config=config)).created is True
        assert (await agents.message("helper", "hi")).delivered is True
        assert (await agents.trigger("helper")).status == "SLEEPING"
        assert (await agents.request("helper", {"q": 1})).status == "COMPLETE"
        chat = await agents.chat("helper", "hi")
        assert (await agents.rename_session("helper", chat.sessionId, "First")).title == "First"
        assert (await agents.sessions("helper")).total >= 1
        assert (await agents.info("helper")).agentId == "helper"
        assert [agent.agentId for agent in (await agents.list()).agents] == ["helper"]
        assert (await agents.fork("helper", "copy")).forkedFrom == "helper"
        assert (await agents.update("copy", config={"extra": 1}))["status"] == "SLEEPING"
        assert (await agents.suspend("copy")).status == "SUSPENDED"
        assert (await agents.resume("copy", auto_wake=False)).status == "SLEEPING"
        assert (await agents.delete("copy")).status == "TERMINATED"


def test_handles_of_agents_and_sessions_work():
    with connect_with_key() as venue:
        venue.agents.create("helper", config={"operation": "v/test/ops/tally"})
        agent = venue.agent("helper")
        assert agent.message("hi").delivered is True
        assert agent.trigger().status == "SLEEPING"
        assert agent.request({"q": 1}).status == "COMPLETE"
        chat = agent.chat("hi")
        session = agent.chat_session()
        session.send("hello")
        assert session.session_id and session.session_id != chat.sessionId
        assert session.rename("Named").title == "Named"
        assert agent.sessions().total >= 2
        assert agent.info().agentId == "helper"
        assert agent.fork("copy").info().agentId == "copy"
        assert agent.update(config={"extra": 1})["status"] == "SLEEPING"
        assert agent.suspend().status == "SUSPENDED"
        assert agent.resume(auto_wake=False).status == "SLEEPING"
        with pytest.raises(GridError):
            agent.cancel_task("0x" + "0" * 32)
        assert agent.delete().status == "TERMINATED"


def test_handles_of_conversations_work():
    with connect_with_key() as venue:
        config = {"operation": "v/ops/llm/agent", "llmOperation": "v/test/ops/llm", "systemPrompt": "Repeat."}
        venue.agents.create("speaker", config=config)
        agent = venue.agent("speaker")
        session = agent.chat_session()
        session.send("one")
        assert agent.read_session(session.session_id).turnCount == 1
        assert "Repeat." in agent.context()
        assert session.read().turnCount == 1
        assert session.reload_context().reloaded is True
        assert session.compact("they spoke").compacted is True
        assert session.delete().deleted is True
        assert agent.sessions().total == 0
