#!/usr/bin/env bash
# Checks the console: the types, the pure parts, that the committed files are those that the sources
# give, and the pages in a real browser against the real binary.
#
#   ui/test.sh          everything; needs Node, Chromium and a built catena binary (or CATENA_BIN)
#   ui/test.sh build    only the files
#   ui/test.sh unit     everything but the browser
set -euo pipefail
cd "$(dirname "$0")"

# The packages are installed again only if the lock file or Node.js has changed.
wanted="$(cat package-lock.json <(node --version) | sha256sum)"
if [ "$(cat node_modules/.installed 2>/dev/null || true)" != "$wanted" ]; then
  npm ci --loglevel=error
  echo "$wanted" > node_modules/.installed
fi
npm run --silent build

changed=$(git status --porcelain -- ../crates/server/src/console)
if [ -n "$changed" ]; then
  echo "The committed files of the console are not those that ui/ gives. Commit the result of npm run build:" >&2
  echo "$changed" >&2
  exit 1
fi
[ "${1:-}" = build ] && exit 0

npm run --silent unit
[ "${1:-}" = unit ] && exit 0

npm run --silent e2e
