#!/usr/bin/env python3
"""Opens the data folders of earlier versions: their jobs continue and their chains verify.

    python3 tests/formats/run.py --binary target/debug/catena

`tests/formats/make.py` made each folder with the binary of its version.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import harness  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
# The status of each job after it was continued.
FINAL = {
    "complete": "COMPLETE",
    "failed": "FAILED",
    "rejected": "REJECTED",
    "workflow": "COMPLETE",
    "rerun": "COMPLETE",
    "cancelled": "CANCELLED",
    "paused": "COMPLETE",
    "asking": "COMPLETE",
    "authorising": "COMPLETE",
    "sealed": "COMPLETE",
    "live_workflow": "COMPLETE",
    "live": "COMPLETE",
    "queued": "COMPLETE",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    args = parser.parse_args()
    names = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))
    assert names, "there is no folder of an earlier version"
    for name in names:
        manifest = json.loads((HERE / f"{name}.json").read_text())
        with tempfile.TemporaryDirectory(prefix="catena-format-") as folder:
            with tarfile.open(HERE / f"{name}.tar.xz") as archive:
                archive.extractall(folder, filter="data")
            check(args.binary, pathlib.Path(folder) / "data", manifest)
        print(f"{name}: {len(manifest['jobs'])} jobs continued, ended as expected and verified")


def check(binary: pathlib.Path, data: pathlib.Path, manifest: dict[str, Any]) -> None:
    jobs = manifest["jobs"]
    assert set(jobs) == set(FINAL), f"unexpected jobs: {set(jobs) ^ set(FINAL)}"
    with harness.venue(binary, data=data) as venue:
        api = harness.Api(venue.url)
        for name, job in jobs.items():
            verify(binary, api, name, job)
        continue_waiting(api, jobs)
        for name, job in jobs.items():
            ended = api.wait(job["id"])
            assert ended["status"] == FINAL[name], f"{name} ended as {ended['status']}: {ended.get('error')}"
            verify(binary, api, name, job)
        assert api.get(f"/api/v1/jobs/{jobs['live']['id']}")["output"] == {"n": 2}
        assert api.get(f"/api/v1/jobs/{jobs['live_workflow']['id']}")["output"] == 7
        assert api.get(f"/api/v1/jobs/{jobs['rerun']['id']}")["output"] == {"n": 1}
        scheduled = json.dumps(api.run("v/ops/scheduler/list", {}))
        assert manifest["schedule"]["handle"] in scheduled, f"the schedule is lost: {scheduled}"
        handle = {"handle": manifest["schedule"]["handle"]}
        assert api.run("v/ops/scheduler/trigger", handle)["triggered"]
        assert api.run("v/ops/scheduler/pause", handle) == {"paused": True}
        resumed = api.run("v/ops/scheduler/resume", handle)
        assert resumed == {"resumed": True, "time": manifest["schedule"]["time"]} or resumed["time"] > manifest["schedule"]["time"], resumed
        # A new job shares the folder with the old ones.
        assert api.invoke("test:echo", {"n": 5})["status"] == "COMPLETE"
        problems = venue.problems()
        assert not problems, "".join(problems)
    checked = subprocess.run([binary, "store", "check", "--data", data], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    secrets = [path for path in data.rglob("*") if path.is_file() and b"planted-secret" in path.read_bytes()]
    assert not secrets, f"a sealed value is stored in plaintext: {secrets}"


def continue_waiting(api: harness.Api, jobs: dict[str, Any]) -> None:
    """Gives each job that waits for people what it waits for."""
    api.put(f"/api/v1/jobs/{jobs['paused']['id']}/resume")
    for name in ["asking", "sealed"]:
        api.post(f"/api/v1/jobs/{jobs[name]['id']}", {"content": "done"})
    api.post(f"/api/v1/jobs/{jobs['authorising']['id']}", {"type": "auth/complete", "credentials": {"token": "t"}})


def verify(binary: pathlib.Path, api: harness.Api, name: str, job: dict[str, str]) -> None:
    """The chain verifies, and still contains the record that was the head in the old folder."""
    history = api.get(f"/api/v1/jobs/{job['id']}/history")
    heads = [record["id"] for record in history["records"]]
    assert job["head"] in heads, f"{name} has lost record {job['head']}"
    done = subprocess.run([binary, "verify", "-"], input=json.dumps(history), capture_output=True, text=True)
    assert done.returncode == 0, f"{name} does not verify: {done.stdout}{done.stderr}"


if __name__ == "__main__":
    main()
