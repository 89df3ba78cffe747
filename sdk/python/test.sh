#!/usr/bin/env bash
# Checks the Python library: types, tests, and that it can be built and installed as a package.
#
#   sdk/python/test.sh          everything; the tests against a real venue need CATENA_BIN
#
# PYTHON selects the interpreter (default: python3). Nothing is written outside target/.
set -euo pipefail
cd "$(dirname "$0")"
python="${PYTHON:-python3}"
root="$(cd ../.. && pwd)"
version="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
work="${CARGO_TARGET_DIR:-$root/target}/sdk-python/$version"
export PYTHONDONTWRITEBYTECODE=1

wanted="$("$python" -c 'import hashlib, sys; print(hashlib.sha256(open("requirements-dev.txt", "rb").read() + sys.version.encode()).hexdigest())')"
if [ "$(cat "$work/installed" 2>/dev/null || true)" != "$wanted" ]; then
  rm -rf "$work"
  "$python" -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check -r requirements-dev.txt
  echo "$wanted" > "$work/installed"
fi

"$work/venv/bin/mypy" --cache-dir "$work/mypy"
"$work/venv/bin/pytest"

# The package is built from a copy, because the build writes next to its sources.
rm -rf "$work/copy" "$work/dist" "$work/clean"
mkdir -p "$work/copy"
cp -r pyproject.toml README.md src "$work/copy/"
"$work/venv/bin/python" -m build --outdir "$work/dist" "$work/copy" >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }
"$python" -m venv "$work/clean"
"$work/clean/bin/pip" install --quiet --disable-pip-version-check "$work"/dist/*.whl
"$work/clean/bin/python" -c 'import catena_worker, catena_worker.testing'
echo "built $(cd "$work/dist" && echo *)"
