#!/usr/bin/env python3
"""Makes the data folder of one version of Catena, with jobs in every state that a folder can hold.

    python3 tests/formats/make.py --binary PATH --name v1

Run it once with the binary of a version whose stored format must stay readable. It writes
`tests/formats/<name>.tar.xz` (the folder as `kill -9` left it) and `tests/formats/<name>.json` (what
the folder holds), which `tests/formats/run.py` opens with every later binary.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import sys
import tarfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import harness  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
# Three slots, of which the paused job occupies one, so that further jobs are queued; and deadlines, which are recorded as wall-clock time, that have
# not passed when the folder is opened years later.
FLAGS = ["--limits-running", "3", "--limits-execution", "36500d", "--limits-interactive", "36500d"]
# Short enough to wait for in a test, long enough to be live when the venue is killed.
DELAY_MS = 4_000


def orchestration(steps: list[Any], result: Any) -> dict[str, Any]:
    return {"name": "fixture", "operation": {"adapter": "orchestrator", "steps": steps, "result": result}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--name", required=True)
    args = parser.parse_args()
    with harness.venue(args.binary, *FLAGS) as venue:
        jobs = fill(venue)
        venue.process.kill()
        venue.process.wait()
        data = pathlib.Path(venue.data)
        for name in ["control.sock"]:
            (data / name).unlink(missing_ok=True)
        with tarfile.open(HERE / f"{args.name}.tar.xz", "w:xz", preset=9) as archive:
            archive.add(data, arcname="data")
    (HERE / f"{args.name}.json").write_text(json.dumps(jobs, indent=2) + "\n")
    shutil.rmtree(HERE / "__pycache__", ignore_errors=True)
    print(f"{args.name}: {len(jobs['jobs'])} jobs")


def fill(venue: harness.Venue) -> dict[str, Any]:
    """Creates the jobs and returns what is known of them when the venue is killed."""
    api = harness.Api(venue.url)
    schedule = api.run("v/ops/scheduler/schedule", {"operation": "test:echo", "input": {"n": 4}, "cron": "0 0 1 1 *"})
    jobs: dict[str, str] = {}
    ended = {
        "complete": api.invoke("test:echo", {"text": "hello"}),
        "failed": api.invoke("test:error", {"message": "on purpose"}),
        "rejected": api.invoke("test:error", {}),
    }
    jobs |= {name: job["id"] for name, job in ended.items()}
    echo = orchestration(
        [
            {"op": "test:echo", "input": ["input"]},
            {"op": "test:echo", "input": [0]},
        ],
        [1],
    )
    workflow = api.register(echo)
    jobs["workflow"] = api.invoke(workflow, {"n": 1})["id"]
    jobs["rerun"] = api.post(f"/api/v1/jobs/{jobs['workflow']}/rerun", {"from": 1})["id"]
    jobs["cancelled"] = api.invoke("test:never", {})["id"]
    api.put(f"/api/v1/jobs/{jobs['cancelled']}/cancel")
    jobs["paused"] = api.invoke("test:progress", {"totalItems": 10, "itemMs": 100})["id"]
    api.put(f"/api/v1/jobs/{jobs['paused']}/pause")
    jobs["asking"] = api.invoke("test:chat", {})["id"]
    jobs["authorising"] = api.invoke("test:auth", {})["id"]
    secret = {
        "name": "sealed",
        "operation": {
            "adapter": "test:chat",
            "input": {"type": "object", "properties": {"password": {"type": "string", "writeOnly": True}}},
        },
    }
    jobs["sealed"] = api.invoke(api.register(secret), {"password": "planted-secret"})["id"]
    waiting = api.register(orchestration([{"op": "test:delay", "input": ["const", {"delay": DELAY_MS, "input": 7}]}], [0]))
    jobs["live_workflow"] = api.invoke(waiting, {})["id"]
    jobs["live"] = api.invoke("test:delay", {"delay": DELAY_MS, "input": {"n": 2}})["id"]
    jobs["queued"] = api.invoke("test:delay", {"delay": 1, "input": {"n": 3}})["id"]
    found = {}
    for name, job in jobs.items():
        state = api.get(f"/api/v1/jobs/{job}")
        found[name] = {"id": job, "status": state["status"], "head": state["head"]}
    expected = {"paused": "PAUSED", "asking": "INPUT_REQUIRED", "authorising": "AUTH_REQUIRED", "sealed": "INPUT_REQUIRED"}
    expected |= {"live_workflow": "STARTED", "live": "STARTED", "queued": "PENDING"}
    for name, status in expected.items():
        assert found[name]["status"] == status, f"{name} is {found[name]['status']}; the machine is too slow"
    return {"jobs": found, "schedule": schedule}


if __name__ == "__main__":
    main()
