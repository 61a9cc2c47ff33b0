#!/usr/bin/env bash
# Finds the server binaries that the tests start, and installs them where it can. Starts nothing itself.
set -euo pipefail

have_postgres() {
  command -v postgres >/dev/null 2>&1 && return 0
  compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null && return 0
  command -v pg_config >/dev/null 2>&1 && [ -x "$(pg_config --bindir)/postgres" ]
}
have_redis() { command -v redis-server >/dev/null 2>&1; }
have_npm() { command -v npm >/dev/null 2>&1; } # brings the third-party model server of the e2e tests

missing=()
have_postgres || missing+=(postgresql)
have_redis || missing+=(redis-server)
have_npm || missing+=(npm)
[ ${#missing[@]} -eq 0 ] && exit 0

sudo=()
[ "$(id -u)" = 0 ] || sudo=(sudo)
echo "installing: ${missing[*]}" >&2
if command -v apt-get >/dev/null 2>&1; then
  "${sudo[@]}" apt-get update -q >&2
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
elif command -v brew >/dev/null 2>&1; then
  brew install postgresql@16 redis node >&2
  export PATH="$(brew --prefix postgresql@16)/bin:$PATH"
elif command -v dnf >/dev/null 2>&1; then
  "${sudo[@]}" dnf install -y -q postgresql-server redis npm >&2
else
  echo "install PostgreSQL (15 or newer), redis-server and npm, then run make test again" >&2
  exit 1
fi
have_postgres && have_redis && have_npm || { echo "PostgreSQL, redis-server or npm is still missing" >&2; exit 1; }
