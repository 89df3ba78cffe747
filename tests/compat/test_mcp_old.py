"""The official MCP client of the previous generation against ``CATENA_URL``: handshake, tools, tasks."""

from __future__ import annotations

import contextlib
import json
import os
import urllib.request
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import anyio
import pytest
from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamable_http_client

URL = os.environ["CATENA_URL"]
TIMEOUT_S = 20


@contextlib.asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[ClientSession]:
    async with streamable_http_client(f"{URL}/mcp") as (read, write, session_id):
        patience = timedelta(seconds=TIMEOUT_S)
        async with ClientSession(read, write, read_timeout_seconds=patience, **options) as session:
            started = await session.initialize()
            assert started.protocolVersion == types.LATEST_PROTOCOL_VERSION
            assert session_id() is None
            yield session


def ask(path: str) -> Any:
    with urllib.request.urlopen(f"{URL}/api/v1/{path}", timeout=TIMEOUT_S) as answer:
        return json.loads(answer.read())


def job(job_id: str) -> Any:
    return ask(f"jobs/{job_id}")


async def test_the_handshake_and_a_ping():
    async with connected() as session:
        await session.send_ping()
        assert session.get_server_capabilities().tasks.requests.tools.call is not None


async def test_tools_are_listed_and_called():
    async with connected() as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert tools["test_echo"].execution.taskSupport == "optional"
        result = await session.call_tool("test_echo", {"text": "hello"})
        assert not result.isError and result.structuredContent == {"text": "hello"}
        assert job(result.meta["catena/job"])["status"] == "COMPLETE"
        result = await session.call_tool("test_random", {"length": 4})
        assert len(result.structuredContent["bytes"]) == 8


async def test_errors_are_results_and_wrong_calls_are_errors():
    async with connected() as session:
        result = await session.call_tool("test_error", {"message": "out of cheese"})
        assert result.isError and result.content[0].text.startswith("out of cheese")
        with pytest.raises(McpError) as caught:
            await session.call_tool("no_such_tool", {})
        assert caught.value.error.code == types.INVALID_PARAMS
        assert (await session.list_prompts()).prompts == []
        with pytest.raises(McpError) as caught:
            await session.subscribe_resource("https://example.org/")
        assert caught.value.error.code == types.METHOD_NOT_FOUND
        assert (await session.call_tool("test_echo", {})).structuredContent == {}


async def test_progress_and_a_long_call():
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with connected() as session:
        arguments = {"totalItems": 4, "itemMs": 500}
        result = await session.call_tool("test_progress", arguments, progress_callback=on_progress)
    assert result.structuredContent["processedItems"] == 4
    assert seen and seen == sorted(set(seen))


async def test_a_job_that_waits_is_not_waited_for():
    async with connected() as session:
        result = await session.call_tool("test_auth", {})
    assert result.isError and "auth/complete" in result.content[0].text


async def test_tasks_are_made_followed_and_listed():
    async with connected() as session:
        tasks = session.experimental
        made = await tasks.call_tool_as_task("test_delay", {"delay": 500, "input": {"a": 1}})
        task = made.task.taskId
        assert made.task.status == "working" and job(task)["id"] == task
        statuses = [state.status async for state in tasks.poll_task(task)]
        assert statuses[-1] == "completed"
        result = await tasks.get_task_result(task, types.CallToolResult)
        assert result.structuredContent == {"a": 1}
        listed, cursor = [], None
        while True:
            page = await tasks.list_tasks(cursor)
            listed += [entry.taskId for entry in page.tasks]
            cursor = page.nextCursor
            if cursor is None:
                break
        assert task in listed


async def test_a_task_is_cancelled():
    async with connected() as session:
        tasks = session.experimental
        task = (await tasks.call_tool_as_task("test_never", {})).task.taskId
        assert (await tasks.cancel_task(task)).status == "cancelled"
        assert job(task)["status"] == "CANCELLED"
        with pytest.raises(McpError):
            await tasks.cancel_task(task)


async def test_disconnecting_does_not_cancel_the_job():
    before = set(ask("jobs?op=test:progress")["items"])
    async with connected() as session, anyio.create_task_group() as group:
        seen = anyio.Event()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            seen.set()

        arguments = {"totalItems": 12, "itemMs": 250}
        group.start_soon(lambda: session.call_tool("test_progress", arguments, progress_callback=on_progress))
        with anyio.fail_after(TIMEOUT_S):
            await seen.wait()
        (left,) = set(ask("jobs?op=test:progress")["items"]) - before
        group.cancel_scope.cancel()
    with anyio.fail_after(TIMEOUT_S):
        while job(left)["status"] == "STARTED":
            await anyio.sleep(0.05)
    assert job(left)["status"] == "COMPLETE"
