#!/bin/sh
# Writes .env for docker compose: passwords and a first API key, random, readable by its owner only.
set -eu
cd "$(dirname "$0")/.."
file="${1:-.env}"
if [ -e "$file" ]; then
    echo "$file exists already, and the database uses its password; remove it only together with the volumes" >&2
    exit 2
fi

digits() { # this many random bytes in hexadecimal
    head -c "$1" /dev/urandom | od -An -v -tx1 | tr -d ' \n'
}

umask 077
cat >"$file" <<END
# Made by deploy/make-env.sh. The passwords have letters and digits only: they become part of URLs.
POSTGRES_PASSWORD=$(digits 32)
REDIS_PASSWORD=$(digits 32)

# The first API key, with every right: send it as "Authorization: Bearer ...". More: docker compose run --rm cli keys create
PROTOQUAD_KEY=pq_$(digits 4)_$(digits 32)

# Where the service is reached. 0.0.0.0 opens it to other machines; then put a TLS proxy in front of it.
PROTOQUAD_ADDRESS=127.0.0.1
PROTOQUAD_PORT=8000

# How many of each; --scale overrides it.
PROTOQUAD_API_REPLICAS=1
PROTOQUAD_WORKER_REPLICAS=1
END
echo "$file is written; now: docker compose up --detach --build --wait"
