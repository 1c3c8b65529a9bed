# Sets `url` to what PostgreSQL's own programs understand of PROTOQUAD_DATABASE_URL. Read by backup.sh and restore.sh.
: "${PROTOQUAD_DATABASE_URL:?is not set; it must name the PostgreSQL database. The embedded one: protoquad backup}"
case "$PROTOQUAD_DATABASE_URL" in
postgres*://*) url="postgresql://${PROTOQUAD_DATABASE_URL#*://}" ;;
*)
    echo "PROTOQUAD_DATABASE_URL names no PostgreSQL database; the embedded one: protoquad backup" >&2
    exit 2
    ;;
esac

# The password goes through the environment: a command line can be read by everybody on the machine.
if [[ $url =~ ^(postgresql://[^:@/?#]*):([^@/?#]*)@(.*)$ ]]; then
    url="${BASH_REMATCH[1]}@${BASH_REMATCH[3]}"
    quoted="${BASH_REMATCH[2]//\\/\\\\}"
    printf -v PGPASSWORD '%b' "${quoted//%/\\x}"
    export PGPASSWORD
fi
