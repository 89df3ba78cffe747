"""The newest official MCP client against ``CATENA_URL``: without a handshake, and with one."""

from __future__ import annotations

import json
import os
import urllib.request
from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim

URL = os.environ["CATENA_URL"]
TIMEOUT_S = 20
TASKS = "io.modelcontextprotocol/tasks"
MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])


def connected(mode: str = "auto", **options: Any) -> Client:
    return Client(f"{URL}/mcp", mode=mode, read_timeout_seconds=TIMEOUT_S, **options)


def ask(path: str, method: str = "GET", body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{URL}/api/v1/{path}", data, method=method)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return json.loads(answer.read())


def job_of(result: types.CallToolResult) -> str:
    assert result.meta is not None
    return str(result.meta["catena/job"])


async def until(job: str, status: str) -> None:
    """Reads a job until it stands there."""
    with anyio.fail_after(TIMEOUT_S):
        while ask(f"jobs/{job}")["status"] != status:
            await anyio.sleep(0.02)


async def test_both_generations_are_negotiated():
    async with connected() as client:
        assert client.protocol_version == "2026-07-28"
        assert client.server_info.name == "catena"
    async with connected("legacy") as client:
        assert client.protocol_version == "2025-11-25"
        await client.send_ping()


@MODES
async def test_tools_are_listed(mode: str):
    async with connected(mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert {"test_echo", "json_merge", "grid_job-result"} <= set(tools)
    assert tools["test_echo"].annotations.read_only_hint
    assert tools["test_random"].output_schema["required"] == ["bytes"]


@MODES
async def test_a_call_gives_text_and_data(mode: str):
    async with connected(mode) as client:
        await client.list_tools()
        result = await client.call_tool("test_echo", {"text": "hello", "n": 1.5})
        assert not result.is_error and result.structured_content == {"text": "hello", "n": 1.5}
        assert json.loads(result.content[0].text) == {"text": "hello", "n": 1.5}
        assert ask(f"jobs/{job_of(result)}")["status"] == "COMPLETE"
        # The client checks what it gets against the schema of the tool.
        result = await client.call_tool("test_random", {"length": 8})
        assert len(result.structured_content["bytes"]) == 16
        result = await client.call_tool("json_merge", {"values": [{"a": 1}, {"b": 2}]})
        assert result.structured_content == {"result": {"a": 1, "b": 2}}


@MODES
async def test_errors_are_results_and_wrong_calls_are_errors(mode: str):
    async with connected(mode) as client:
        result = await client.call_tool("test_error", {"message": "out of cheese"})
        assert result.is_error and result.content[0].text.startswith("out of cheese")
        result = await client.call_tool("test_error", {"message": 5})
        assert result.is_error and result.meta["catena/status"] == "REJECTED"
        with pytest.raises(MCPError) as caught:
            await client.call_tool("no_such_tool", {})
        assert caught.value.code == types.INVALID_PARAMS
        assert (await client.call_tool("test_echo", {})).structured_content == {}


@MODES
async def test_progress_is_reported(mode: str):
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        assert total == 4
        seen.append(progress)

    async with connected(mode) as client:
        arguments = {"totalItems": 4, "itemMs": 300}
        result = await client.call_tool("test_progress", arguments, progress_callback=on_progress)
    assert result.structured_content["processedItems"] == 4
    assert seen and seen == sorted(set(seen))


@MODES
async def test_a_long_call_comes_back(mode: str):
    async with connected(mode) as client:
        result = await client.call_tool("test_delay", {"delay": 2500, "input": {"a": 1}})
    assert result.structured_content == {"a": 1}


async def test_cancelling_a_call_cancels_its_job():
    seen = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.set()

    before = set(ask("jobs?op=test:progress")["items"])
    async with connected() as client, anyio.create_task_group() as group:
        arguments = {"totalItems": 1000, "itemMs": 100}
        group.start_soon(lambda: client.call_tool("test_progress", arguments, progress_callback=on_progress))
        with anyio.fail_after(TIMEOUT_S):
            await seen.wait()
        (job,) = set(ask("jobs?op=test:progress")["items"]) - before
        group.cancel_scope.cancel()
    await until(job, "CANCELLED")


async def test_a_question_reaches_the_user_and_the_answer_the_job():
    answers = iter(["hello", "done"])
    asked: list[str] = []

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"content": next(answers)})

    async with connected(elicitation_callback=answer) as client:
        result = await client.call_tool("test_chat", {})
    assert result.structured_content["message"] == "done"
    assert len(asked) == 2 and "hello" in asked[1]


@MODES
async def test_a_client_without_elicitation_gets_instructions(mode: str):
    async with connected(mode) as client:
        result = await client.call_tool("test_chat", {})
    assert result.is_error and f"{URL}/api/v1/jobs/{job_of(result)}" in result.content[0].text
    ask(f"jobs/{job_of(result)}", "POST", {"content": "done"})
    await until(job_of(result), "COMPLETE")


async def test_a_stream_of_changes_is_acknowledged():
    async with connected() as client, client.listen(tools_list_changed=True) as changes:
        assert changes.honored.tools_list_changed is None, "the list of tools changes with a restart only"


class Task(types.Result):
    """The result of a call that takes long."""

    result_type: Literal["task"] = "task"
    taskId: str
    status: str


class Tasks(ClientExtension):
    """The part of the tasks extension that is needed to wait for a task."""

    identifier = TASKS

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def finish(self, task: Task, context: ClaimContext) -> types.CallToolResult:
        self.seen.append(task.taskId)
        with anyio.fail_after(TIMEOUT_S):
            while ask(f"jobs/{task.taskId}")["status"] != "COMPLETE":
                await anyio.sleep(0.02)
        return types.CallToolResult(content=[types.TextContent(type="text", text=task.status)])

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Task, resolve=self.finish)]


async def test_a_client_that_takes_tasks_gets_one():
    tasks = Tasks()
    async with connected(extensions=[tasks]) as client:
        quick = await client.call_tool("test_echo", {"a": 1})
        assert quick.structured_content == {"a": 1} and not tasks.seen
        slow = await client.call_tool("test_delay", {"delay": 2000, "input": {"a": 1}})
        assert slow.content[0].text == "working" and len(tasks.seen) == 1
    assert ask(f"jobs/{tasks.seen[0]}")["output"] == {"a": 1}
