#!/usr/bin/env bash
# Restores what backup.sh wrote into the empty PostgreSQL database that PROTOQUAD_DATABASE_URL names: all or nothing.
#   PROTOQUAD_DATABASE_URL=postgresql://user:password@host/new deploy/restore.sh FILE
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 FILE" >&2; exit 2; }
source "$(dirname "${BASH_SOURCE[0]}")/database-url.sh"

pg_restore --single-transaction --exit-on-error --no-owner --no-privileges --dbname="$url" "$1"
vacuumdb --analyze-only --quiet --dbname="$url" # otherwise the first queries are planned for empty tables
