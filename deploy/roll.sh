#!/usr/bin/env bash
# Puts a new image in the place of the one that runs, with no moment in which nobody answers. It takes the room of twice
# as many replicas for a while; `docker compose up` alone replaces them all at once.
#   docker compose build && deploy/roll.sh [options of docker compose]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
compose() { docker compose "${options[@]}" "$@"; }
options=("$@")

mapfile -t old < <(compose ps --quiet api)
workers=$(compose ps --quiet worker | wc -l)
[ ${#old[@]} -gt 0 ] || { echo "no replica of the API runs; docker compose up starts the new image" >&2; exit 2; }

compose rm --force migrate # so that the new release's is made, and brings the tables up before a replica starts
compose up --detach --wait --no-recreate --scale "api=$((2 * ${#old[@]}))" api
docker stop "${old[@]}" >/dev/null # each finishes what is in flight; the proxy sends nothing more to it
docker rm "${old[@]}" >/dev/null
compose up --detach --wait --scale "api=${#old[@]}" --scale "worker=$workers"
