"""The client against a fake venue: requests, errors and event streams."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from catena_worker import AsyncClient, Client, JobFailed, Unreachable, VenueError
from catena_worker.sse import Frame, Parser
from fake_venue import FakeVenue


@pytest.fixture
def venue() -> Iterator[FakeVenue]:
    with FakeVenue() as running:
        yield running


def test_an_operation_is_invoked_and_its_output_returned(venue: FakeVenue) -> None:
    venue.instant["test:echo"] = lambda input: input
    with Client(venue.url, token="t") as client:
        assert client.run("test:echo", {"a": 1}) == {"a": 1}
        job = client.invoke("test:echo", [1], idempotency_key="k")
        assert (job.status, job.output) == ("COMPLETE", [1])
    _, _, headers, _ = next(request for request in venue.requests if request[2].get("idempotency-key"))
    assert (headers["authorization"], headers["idempotency-key"]) == ("Bearer t", "k")


def test_a_failed_job_raises_what_the_venue_says(venue: FakeVenue) -> None:
    with Client(venue.url) as client:
        job = client.invoke("o/work")
        with venue.changed:
            venue.jobs[job.id].status, venue.jobs[job.id].error = "FAILED", "no paper"
            venue.changed.notify_all()
        with pytest.raises(JobFailed, match="is FAILED: no paper"):
            client.wait(job.id).result()


def test_refusals_and_lost_connections_are_typed_errors(venue: FakeVenue) -> None:
    with Client(venue.url) as client:
        with pytest.raises(VenueError) as refused:
            client.job("0x" + "f" * 32)
        assert (refused.value.status, refused.value.code) == (404, "job_not_found")
        venue.failures["/api/v1/invoke"] = [None]
        with pytest.raises(Unreachable):
            client.invoke("o/work")


def test_the_async_client_does_the_same(venue: FakeVenue) -> None:
    venue.instant["test:echo"] = lambda input: input

    async def scenario() -> None:
        async with AsyncClient(venue.url) as client:
            assert await client.run("test:echo", 5, returns=int) == 5

    asyncio.run(scenario())


def test_lines_of_an_event_stream_become_frames() -> None:
    parser = Parser()
    lines = "retry: 250\n: comment\nevent: job-update\nid: 3\ndata: {\ndata: }\n\nevent: empty\n\ndata:x\n\n".split("\n")
    frames = [frame for line in lines if (frame := parser.push_line(line))]
    assert frames == [Frame("job-update", "{\n}", "3"), Frame("message", "x", None)]
    assert parser.retry_s == 0.25
