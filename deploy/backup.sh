#!/usr/bin/env bash
# Writes the PostgreSQL database that PROTOQUAD_DATABASE_URL names to one file. The service may run meanwhile.
#   PROTOQUAD_DATABASE_URL=postgresql://user:password@host/protoquad deploy/backup.sh FILE
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 FILE" >&2; exit 2; }
file="$1"
source "$(dirname "${BASH_SOURCE[0]}")/database-url.sh"
[ ! -e "$file" ] || { echo "$file exists already; name another file" >&2; exit 2; }

umask 077 # it holds every picture that was taught, and the digests of the keys
part="$file.part-$$"
trap 'rm -f "$part"' EXIT
pg_dump --format=custom --no-owner --no-privileges --dbname="$url" --file="$part"
pg_restore --file=/dev/null "$part" # to its end: a backup that nobody has read is a hope
mv "$part" "$file"
