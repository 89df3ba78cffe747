#!/usr/bin/env bash
# Checks the TypeScript library: types, tests, and that it can be built and installed as a package.
#
#   sdk/typescript/test.sh      everything; the tests against a real venue need CATENA_BIN
#
# Everything runs in a copy under target/, so that nothing is written next to the sources.
set -euo pipefail
cd "$(dirname "$0")"
root="$(cd ../.. && pwd)"
work="${CARGO_TARGET_DIR:-$root/target}/sdk-typescript"
copy="$work/copy"
mkdir -p "$copy"
rm -rf "$copy"/{src,tests,examples,dist}
cp -r src tests examples package.json package-lock.json tsconfig.json README.md "$copy/"
export CATENA_REPOSITORY="$root"
cd "$copy"

wanted="$(cat package-lock.json <(node --version) | sha256sum)"
if [ "$(cat "$work/installed" 2>/dev/null || true)" != "$wanted" ]; then
  npm ci --loglevel=error
  echo "$wanted" > "$work/installed"
fi

./node_modules/.bin/tsc
node --test --test-timeout=120000 dist/tests/

rm -rf "$work/pack" "$work/clean"
mkdir -p "$work/pack" "$work/clean"
npm pack --loglevel=error --pack-destination "$work/pack" >/dev/null
cd "$work/clean"
npm init --yes --loglevel=error >/dev/null
npm install --loglevel=error --no-audit --no-fund "$work"/pack/*.tgz >/dev/null
node --input-type=module -e 'import { Worker } from "catena-worker"; import { Harness } from "catena-worker/testing"; new Worker(); Harness;'
echo "built $(cd "$work/pack" && echo *)"
