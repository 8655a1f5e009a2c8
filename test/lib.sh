# shellcheck shell=bash disable=SC2034
# lib.sh: what check.sh, demo.sh and the benchmarks share.  Sourced by bash, not run.
#
# All of them work as root (the server then runs as user postgres) and as a user who
# may use sudo (the server then runs as that user; sudo is used for apt only, and only
# when a package is missing).  Nothing outside one temporary directory is written:
# the sources are built from a copy, and the server is a copy of the installed
# PostgreSQL, which finds its libraries and its share directory beside its own binary.
# The extension is therefore installed into the copy and the system's PostgreSQL and
# its clusters stay as they are.  Every exit, also by a signal, stops what was started
# and removes the directory.

set -euo pipefail
# PostgreSQL's Perl modules drop LC_ALL: what is left then is LANG
export LC_ALL=C.UTF-8 LANG=C.UTF-8
# PGHOST and the like must not lead us to another server
for name in "${!PG@}"; do
  case $name in PG_MAJOR | PG_CONFIG | PG_SOURCE) ;; *) unset "$name" ;; esac
done

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SUPPORTED_MAJORS="15 17 18"

# ------------------------------------------------------------------ output

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
  BOLD=$'\e[1m' DIM=$'\e[2m' RED=$'\e[31m' GREEN=$'\e[32m' PLAIN=$'\e[0m'
else
  BOLD='' DIM='' RED='' GREEN='' PLAIN=''
fi

say() { printf '%s\n' "$*"; }
title() { printf '\n%s%s%s\n' "$BOLD" "$*" "$PLAIN"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Runs a command with its output in a log; shows the end of the log when it fails.
quietly() {
  local log=$1
  shift
  if ! "$@" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    die "failed: $*"
  fi
}

# ------------------------------------------------------------------ results of tests

PASSED=0 FAILED=0 SKIPPED=0

totals() { say "$PASSED passed, $FAILED failed$([ "$SKIPPED" = 0 ] || echo ", $SKIPPED skipped")"; }

# add_totals LINE: adds what totals() has printed elsewhere; false if it is something else.
add_totals() {
  [[ $1 =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]] || return 1
  PASSED=$((PASSED + BASH_REMATCH[1]))
  FAILED=$((FAILED + BASH_REMATCH[2]))
  SKIPPED=$((SKIPPED + ${BASH_REMATCH[4]:-0}))
}

# ------------------------------------------------------------------ rights

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "needs root for: $* (be root, or install sudo)"
  fi
}

# Runs a command as the user the server runs as, in the temporary directory.
as_server() {
  if [ "$(id -u)" = 0 ]; then
    (cd "$WORK" && runuser -u postgres -- env HOME="$WORK" "$@")
  else
    (cd "$WORK" && env HOME="$WORK" "$@")
  fi
}

own_by_server() {
  if [ "$(id -u)" = 0 ]; then chown -R postgres "$@"; fi
}

# ------------------------------------------------------------------ packages

is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Installs those of the named packages that are missing.  A fresh PostgreSQL package
# would create and start a cluster: a setting that stands only while apt runs says no.
need_packages() {
  local missing=() package
  for package; do
    is_installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return 0
  command -v apt-get >/dev/null ||
    die "this script installs Debian packages; install the counterparts of: ${missing[*]}"
  say "installing: ${missing[*]}"
  # shellcheck disable=SC2016 # the inner shell expands
  as_root sh -c '
    conf=/etc/postgresql-common/createcluster.d/shuffle_ext_test.conf
    log=$(mktemp)
    trap "rm -f $conf $log; rmdir /etc/postgresql-common/createcluster.d 2>/dev/null" EXIT
    trap "exit 1" HUP INT TERM
    mkdir -p /etc/postgresql-common/createcluster.d
    echo "create_main_cluster = false" >"$conf"
    export DEBIAN_FRONTEND=noninteractive
    if ! { apt-get update -q && apt-get install -qy --no-install-recommends "$@"; } >"$log" 2>&1
    then
      tail -n 30 "$log" >&2
      exit 1
    fi' sh "${missing[@]}" </dev/null || die "could not install ${missing[*]}"
}

# The Debian mirror that apt is set up with, without trailing slash; fails if there is none.
debian_mirror() {
  local site
  # shellcheck disable=SC2016 # apt expands
  site=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' 2>/dev/null | head -n 1)
  echo "${site%/}"
  [ -n "$site" ]
}

# ------------------------------------------------------------------ a directory of our own

WORK=''
KEEP=''
PIDS=() # background processes that cleanup ends

cleanup() {
  local status=$?
  trap - EXIT
  trap '' HUP INT TERM
  set +e
  [ ${#PIDS[@]} = 0 ] || kill "${PIDS[@]}" 2>/dev/null
  if [ -n "$WORK" ] && [ -d "$WORK" ]; then
    server_stop
    if [ -n "$KEEP" ]; then
      say "kept: $WORK"
    else
      cd / && rm -rf "$WORK"
    fi
  fi
  exit "$status"
}

# Makes $WORK, readable by the server's user and nobody else.
make_work() {
  WORK=$(mktemp -d "${TMPDIR:-/tmp}/shuffle_ext.XXXXXX")
  trap cleanup EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  [ ${#WORK} -le 80 ] || die "TMPDIR is too long for a unix socket: $WORK"
  mkdir "$WORK/log"
}

# The major version to work with: $PG_MAJOR, else the newest supported one that is
# installed, else the one of this Debian release.
choose_major() {
  local major
  if [ -z "${PG_MAJOR:-}" ]; then
    for major in $SUPPORTED_MAJORS; do
      [ -x "/usr/lib/postgresql/$major/bin/postgres" ] && PG_MAJOR=$major
    done
  fi
  if [ -z "${PG_MAJOR:-}" ]; then
    [ -n "$(apt-cache madison postgresql 2>/dev/null)" ] || as_root apt-get update -qq
    PG_MAJOR=$(apt-cache madison postgresql 2>/dev/null | sed -n '1s/^[^|]*| *\([0-9]*\).*/\1/p')
  fi
  [ -n "${PG_MAJOR:-}" ] || die "no PostgreSQL package found; set PG_MAJOR"
  export PG_MAJOR
}

# Installs what building and running need, copies server and sources, builds and
# installs into the copy.  Sets WORK, PG_BIN, PG_CONFIG and BUILD.
prepare() {
  choose_major
  need_packages gcc make libc6-dev liblz4-dev libzstd-dev \
    "postgresql-$PG_MAJOR" "postgresql-server-dev-$PG_MAJOR"
  make_work
  if [ "$(id -u)" = 0 ]; then chown postgres "$WORK"; fi

  mkdir -p "$WORK/usr/lib/postgresql" "$WORK/usr/share/postgresql"
  cp -a "/usr/lib/postgresql/$PG_MAJOR" "$WORK/usr/lib/postgresql/"
  cp -a "/usr/share/postgresql/$PG_MAJOR" "$WORK/usr/share/postgresql/"
  ln -s /usr/include "$WORK/usr/include"
  PG_BIN=$WORK/usr/lib/postgresql/$PG_MAJOR/bin
  PG_CONFIG=$PG_BIN/pg_config
  [ "$("$PG_CONFIG" --sharedir)" = "$WORK/usr/share/postgresql/$PG_MAJOR" ] ||
    die "this build of PostgreSQL $PG_MAJOR cannot run from a copy"

  copy_sources
}

# Copies the sources to $BUILD.
copy_sources() {
  BUILD=$WORK/src
  mkdir "$BUILD"
  tar -C "$TOP" --exclude=./.git --exclude='*.o' --exclude='*.bc' --exclude='*.so' \
    --exclude=__pycache__ --exclude=./tmp_check --exclude=./results --exclude=./build \
    -cf - . | tar -C "$BUILD" --no-same-owner -xf -
}

build() {
  make -s -C "$BUILD" -j"$(nproc)" PG_CONFIG="$PG_CONFIG" WERROR=1 &&
    make -s -C "$BUILD" PG_CONFIG="$PG_CONFIG" install &&
    own_by_server "$BUILD"
}

build_and_install() {
  say "building for PostgreSQL $PG_MAJOR"
  quietly "$WORK/log/build" build
}

# ------------------------------------------------------------------ server

DATA=''

# server_start [SETTING=VALUE ...]: a new cluster, reached through a socket in $WORK.
server_start() {
  DATA=$WORK/data
  quietly "$WORK/log/initdb" as_server "$PG_BIN/initdb" -D "$DATA" -U postgres -A trust \
    -E UTF8 --locale=C.UTF-8 --no-instructions --no-sync
  {
    echo "listen_addresses = ''"
    echo "unix_socket_directories = '$WORK'"
    echo "timezone = 'UTC'"
    echo "log_timezone = 'UTC'"
    echo "logging_collector = off"
    local setting
    for setting; do echo "${setting%%=*} = '${setting#*=}'"; done
  } >>"$DATA/postgresql.conf"
  export PGHOST=$WORK PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
  server_run
}

server_run() {
  touch "$WORK/log/server"
  own_by_server "$WORK/log/server"
  as_server "$PG_BIN/pg_ctl" -D "$DATA" -l "$WORK/log/server" -w -t 120 start >/dev/null || {
    tail -n 30 "$WORK/log/server" >&2
    die "the server did not start"
  }
}

server_stop() {
  if [ -n "$DATA" ] && [ -f "$DATA/postmaster.pid" ]; then
    as_server "$PG_BIN/pg_ctl" -D "$DATA" -w -m fast stop >/dev/null 2>&1 ||
      as_server "$PG_BIN/pg_ctl" -D "$DATA" -w -m immediate stop >/dev/null 2>&1 || true
  fi
}

# psql without start-up file, stopping at the first error.
sql() { as_server "$PG_BIN/psql" -X -q -v ON_ERROR_STOP=1 "$@"; }

# One value of one statement.
value() { sql -At -c "$1"; }

# wait_for CONDITION: until it holds in SQL; false if it does not within a minute.
wait_for() {
  local i
  for ((i = 0; i < 600; i++)); do
    [ "$(value "SELECT $1")" != t ] || return 0
    sleep 0.1
  done
  return 1
}

# A quarter of the machine's memory, in MB.
quarter_of_memory() { awk '/^MemTotal:/ { print int($2 / 4096) }' /proc/meminfo; }

# ------------------------------------------------------------------ data

# load_lineitem ROWS: table lineitem, filled by as many sessions as there are cores.
load_lineitem() {
  local rows=$1 jobs slice first=1 i pids=()
  jobs=$(nproc)
  [ "$jobs" -le 8 ] || jobs=8
  [ "$rows" -ge 100000 ] || jobs=1
  sql -f "$BUILD/test/lineitem_table.sql"
  for ((i = 1; i <= jobs; i++)); do
    slice=$((rows * i / jobs))
    sql -v rows="$rows" -v first="$first" -v last="$slice" -f "$BUILD/test/lineitem.sql" &
    pids+=($!)
    first=$((slice + 1))
  done
  for i in "${pids[@]}"; do wait "$i" || die "could not fill lineitem"; done
  sql -c 'VACUUM (FREEZE, ANALYZE) lineitem' -c CHECKPOINT
}

# load_tpch SCALE: the same table with the rows of TPC-H, made by tpchgen-cli (PyPI).
load_tpch() {
  make_venv 'tpchgen-cli==4.0.0' || die "the TPC-H generator (PyPI: tpchgen-cli) cannot be had"
  sql -f "$BUILD/test/lineitem_table.sql"
  as_server "$WORK/venv/bin/tpchgen-cli" csv -s "$1" --tables lineitem --stdout --quiet |
    sql -c 'COPY lineitem FROM STDIN (FORMAT csv, HEADER)'
  sql -c 'VACUUM (FREEZE, ANALYZE) lineitem' -c CHECKPOINT
}

# make_venv REQUIREMENT...: Python packages into $WORK/venv; false if they cannot be had.
make_venv() {
  need_packages python3 python3-venv
  [ -d "$WORK/venv" ] || quietly "$WORK/log/venv" /usr/bin/python3 -m venv "$WORK/venv"
  "$WORK/venv/bin/pip" install -q "$@" >"$WORK/log/pip" 2>&1 || return 1
  # nothing in it may be private to root
  chmod -R go+rX "$WORK/venv"
}
