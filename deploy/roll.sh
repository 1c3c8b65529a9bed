#!/usr/bin/env bash
# Replaces the running image by a new one without downtime. For a while there are twice as many replicas;
# `docker compose up` alone replaces them all at once.
#   docker compose build && deploy/roll.sh [options of docker compose]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
compose() { docker compose "${options[@]}" "$@"; }
options=("$@")

mapfile -t old < <(compose ps --quiet api)
workers=$(compose ps --quiet worker | wc -l)
[ ${#old[@]} -gt 0 ] || { echo "no replica of the API runs; docker compose up starts the new image" >&2; exit 2; }

compose rm --force migrate # so that the new release's container migrates the database before a replica starts
compose up --detach --wait --no-recreate --scale "api=$((2 * ${#old[@]}))" api
docker stop "${old[@]}" >/dev/null # each finishes its requests; the proxy sends it no new ones
docker rm "${old[@]}" >/dev/null
compose up --detach --wait --scale "api=${#old[@]}" --scale "worker=$workers"
