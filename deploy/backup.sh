#!/usr/bin/env bash
# Writes the PostgreSQL database that PROTOQUAD_DATABASE_URL names to one file. The service may run meanwhile.
#   PROTOQUAD_DATABASE_URL=postgresql://user:password@host/protoquad deploy/backup.sh FILE
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 FILE" >&2; exit 2; }
file="$1"
source "$(dirname "${BASH_SOURCE[0]}")/database-url.sh"
[ ! -e "$file" ] || { echo "$file exists already; name another file" >&2; exit 2; }

umask 077 # the file holds every stored image, and the digests of the keys
part="$file.part-$$"
trap 'rm -f "$part"' EXIT
pg_dump --format=custom --no-owner --no-privileges --dbname="$url" --file="$part"
pg_restore --file=/dev/null "$part" # read to its end, so that a broken backup is noticed now
mv "$part" "$file"
