# Sets `url` to PROTOQUAD_DATABASE_URL as PostgreSQL's own programs understand it. Sourced by backup.sh and restore.sh.
: "${PROTOQUAD_DATABASE_URL:?is not set; it must name the PostgreSQL database. The embedded one: protoquad backup}"
case "$PROTOQUAD_DATABASE_URL" in
postgres*://*) url="postgresql://${PROTOQUAD_DATABASE_URL#*://}" ;;
*)
    echo "PROTOQUAD_DATABASE_URL does not name a PostgreSQL database. The embedded one: protoquad backup" >&2
    exit 2
    ;;
esac

# The password is passed in the environment: everyone on the machine can read a command line.
if [[ $url =~ ^(postgresql://[^:@/?#]*):([^@/?#]*)@(.*)$ ]]; then
    url="${BASH_REMATCH[1]}@${BASH_REMATCH[3]}"
    quoted="${BASH_REMATCH[2]//\\/\\\\}"
    printf -v PGPASSWORD '%b' "${quoted//%/\\x}"
    export PGPASSWORD
fi
