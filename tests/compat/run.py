#!/usr/bin/env python3
"""Runs published clients, unmodified, against a venue: the Python SDK of Covia, then the official MCP clients.

    python3 tests/compat/run.py --binary target/debug/catena

The SDK comes from the package index by name (covia 0.9.11), its tests and examples from the source
distribution of the same version, whose digest is pinned. Nothing of it is stored in this tree. The MCP
clients come from the package index as well: the newest, and one of the previous generation.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pathlib
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import harness  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
VERSION = "0.9.11"
SDIST = f"covia-{VERSION}.tar.gz"
SDIST_SHA256 = "f4bfcbca78804d7e42767c821f11ed8675ca57b677aa05fbc26f2c001606705a"

DESELECTED: dict[str, str] = {}
INTEGRATION_TESTS = 11
OUR_TESTS = 37

EXAMPLES = {
    "hello_venue.py": "DID: did:key:",
    "run_operation.py": "Result: {'schema'",
    "invoke_asset.py": "is_operation: True",
    "job_lifecycle.py": "After cancel: CANCELLED",
    "manage_assets.py": "Downloaded:",
    "error_handling.py": "API error 422: something went wrong",
    "async_demo.py": "operations available:",
    "discovery.py": "MCP version:  2026-07-28",
}
EXAMPLES_LEFT_OUT: dict[str, str] = {}

# Requirements, test file, and number of tests.
MCP_CLIENTS = [
    ("requirements-mcp.txt", "test_mcp.py", 17),
    ("requirements-mcp-old.txt", "test_mcp_old.py", 8),
]


def source(python: pathlib.Path) -> pathlib.Path:
    """The unpacked source distribution."""
    folder = harness.TARGET / "compat"
    archive = folder / SDIST
    if not archive.exists():
        download = [str(python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        download += ["--no-binary", ":all:", "--no-deps", "-d", str(folder), f"covia=={VERSION}"]
        subprocess.run(download, check=True)
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SDIST_SHA256:
        raise SystemExit(f"{archive} has another digest than expected: {found}")
    unpacked = folder / f"covia-{VERSION}"
    if not unpacked.exists():
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    return unpacked


def pytest(python: pathlib.Path, folder: pathlib.Path, arguments: list[str], urls: dict[str, str], expected: int) -> None:
    """Runs tests. All must pass, none may be skipped, and their number must be as expected."""
    report = harness.TARGET / "compat" / "report.xml"
    report.unlink(missing_ok=True)
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
    command += [f"--junitxml={report}", *arguments]
    ended = subprocess.run(command, cwd=folder, env={**os.environ, **urls, "PYTHONDONTWRITEBYTECODE": "1"})
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    count = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
    if ended.returncode != 0 or count != {"tests": expected, "failures": 0, "errors": 0, "skipped": 0}:
        raise SystemExit(f"expected {expected} tests to pass, found {count} (exit {ended.returncode})")


def example(python: pathlib.Path, script: pathlib.Path, url: str, expected: str) -> None:
    """Runs an example, which must succeed and print the expected text."""
    environment = {**os.environ, "COVIA_VENUE_URL": url, "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        [str(python), str(script)], env=environment, capture_output=True, text=True, timeout=60
    )
    if ended.returncode != 0 or expected not in ended.stdout:
        raise SystemExit(
            f"{script.name} ended with {ended.returncode} and did not say {expected!r}:\n"
            f"{ended.stdout}{ended.stderr}"
        )


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--binary", type=pathlib.Path, required=True)
    binary: pathlib.Path = arguments.parse_args().binary
    steps = harness.Steps()
    python = harness.environment("compat", HERE / "requirements.txt")
    sdk = source(python)
    scripts = {script.name for script in (sdk / "examples").glob("*.py")}
    assert scripts == set(EXAMPLES) | set(EXAMPLES_LEFT_OUT), f"other examples than known: {scripts}"

    with harness.venue(binary) as venue, harness.venue(
        binary, "--limits-rate", "2", "--limits-burst", "2"
    ) as limited:
        steps.say(f"the SDK's integration tests, {INTEGRATION_TESTS} of them")
        for name, reason in DESELECTED.items():
            print(f"  left out: {name.rsplit('::', 1)[1]}: {reason}")
        urls = {"COVIA_VENUE_URL": venue.url, "COVIA_REQUIRE_VERSION_MATCH": "1"}
        deselected = [argument for name in DESELECTED for argument in ("--deselect", name)]
        integration = ["-m", "integration", "tests/integration", *deselected]
        pytest(python, sdk, integration, urls, INTEGRATION_TESTS)

        for name, expected in EXAMPLES.items():
            example(python, sdk / "examples" / name, venue.url, expected)
            steps.say(f"the SDK's examples/{name}")
        for name, reason in EXAMPLES_LEFT_OUT.items():
            print(f"  left out: {name}: {reason}")

        steps.say(f"our tests of the SDK's other methods, {OUR_TESTS} of them")
        urls = {"COVIA_VENUE_URL": venue.url, "CATENA_LIMITED_URL": limited.url}
        pytest(python, HERE, ["-o", "asyncio_mode=auto", "test_sdk.py"], urls, OUR_TESTS)
        problems = venue.problems() + limited.problems()
        if problems:
            raise SystemExit("the venue logged errors:\n" + "".join(problems))
    steps.say(f"covia {VERSION} works: {INTEGRATION_TESTS} of its tests, {len(EXAMPLES)} examples, {OUR_TESTS} of ours")
    mcp_clients(binary, steps)


def mcp_clients(binary: pathlib.Path, steps: harness.Steps) -> None:
    """Runs the official MCP clients."""
    for requirements, tests, count in MCP_CLIENTS:
        folder = requirements.removesuffix(".txt").replace("requirements", "compat")
        python = harness.environment(folder, HERE / requirements)
        wanted = next(line for line in (HERE / requirements).read_text().splitlines() if line.startswith("mcp=="))
        with harness.venue(binary) as venue:
            pytest(python, HERE, ["-o", "asyncio_mode=auto", tests], {"CATENA_URL": venue.url}, count)
            if problems := venue.problems():
                raise SystemExit("the venue logged errors:\n" + "".join(problems))
        steps.say(f"{wanted} works: {count} tests")


if __name__ == "__main__":
    main()
