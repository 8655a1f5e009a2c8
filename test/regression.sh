#!/bin/bash
# regression.sh: PostgreSQL's own regression tests with shuffle as the default access method.
#
# Nothing may crash, and what differs from heap must be a refusal or follow from one.  The
# tests' own expected results do not say that: most of a test file depends on a table with
# a primary key, or a temporary one.  So the files are relaxed first (no keys in CREATE
# TABLE, no temporary tables), run with default_table_access_method = heap, which gives
# what to expect, and then with shuffle; regression_classify.py compares both, statement
# by statement.
. "$(dirname "$0")/lib.sh"

usage() {
  cat <<USAGE
usage: PG_SOURCE=DIR [PG_CONFIG=FILE] test/regression.sh [--keep] [TEST ...]

PG_SOURCE  PostgreSQL source tree of the same version, for src/test/regress
PG_CONFIG  of the server to test, best one built with --enable-cassert in a prefix of its
           own (it is copied, not written to); without it, Debian's
TEST       some of the tests of parallel_schedule, in its order; default: all
USAGE
}

TESTS=()
while [ $# -gt 0 ]; do
  case $1 in
    --keep) KEEP=1 ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*)
      usage >&2
      exit 2
      ;;
    *) TESTS+=("$1") ;;
  esac
  shift
done

if [ ! -f "${PG_SOURCE:-}/src/test/regress/parallel_schedule" ]; then
  say "skip  regression: no PostgreSQL source tree (PG_SOURCE is \"${PG_SOURCE:-}\")"
  exit 0
fi

# ------------------------------------------------------------------ server

if [ -n "${PG_CONFIG:-}" ]; then
  need_packages gcc make libc6-dev liblz4-dev libzstd-dev python3
  make_work
  if [ "$(id -u)" = 0 ]; then chown postgres "$WORK"; fi
  cp -a "$("$PG_CONFIG" --bindir)/.." "$WORK/pg"
  PG_BIN=$WORK/pg/bin
  PG_CONFIG=$PG_BIN/pg_config
  case $("$PG_CONFIG" --sharedir) in
    "$WORK"/*) ;;
    *) die "this PostgreSQL cannot run from a copy" ;;
  esac
  PG_MAJOR=$("$PG_CONFIG" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
  copy_sources
else
  prepare
fi
build_and_install

# ------------------------------------------------------------------ the tests, relaxed

REGRESS=$WORK/regress
cp -r "$PG_SOURCE/src/test/regress" "$REGRESS"
for library in regress "${PG_SOURCE}"/contrib/spi/{refint,autoinc}; do
  source=$library.c
  [ "$library" != regress ] || source=$PG_SOURCE/src/test/regress/regress.c
  [ -f "$source" ] || continue
  gcc -w -O1 -shared -fPIC -D_GNU_SOURCE -I"$("$PG_CONFIG" --includedir-server)" \
    -o "$REGRESS/$(basename "$library").so" "$source"
done
# Parallel groups would race for what are no temporary tables any more.
sed -i -E \
  -e 's/\b(create|CREATE) (local |LOCAL |global |GLOBAL )?(temp|TEMP|temporary|TEMPORARY) (table|TABLE)\b/\1 \4/g' \
  -e 's/,\s*(constraint \w+ )?(primary key|unique)\s*(nulls (not )?distinct )?\([^()]*\)//gI' \
  -e '/alter table|on conflict|add constraint/I!s/\bprimary key( deferrable( initially \w+)?)?\s*(,|\)|$)/not null \3/gI' \
  -e '/alter table|index/I!s/\bunique( deferrable( initially \w+)?)?\s*(,|\)|$)/\3/gI' \
  -e 's/^drop publication /&if exists /I' "$REGRESS"/sql/*.sql
if [ ${#TESTS[@]} = 0 ]; then
  mapfile -t TESTS < <(sed -n 's/^test: *//p' "$REGRESS/parallel_schedule" | tr -s ' ' '\n')
fi

server_start fsync=off max_connections=50 max_prepared_transactions=10 max_worker_processes=16 \
  log_error_verbosity=verbose log_line_prefix='%q%a ' shared_buffers=128MB autovacuum_naptime=10s
# run ACCESS_METHOD: all tests, results in $WORK/<access method>
run() {
  local pgxs
  pgxs=$(dirname "$("$PG_CONFIG" --pgxs)")
  sql -c "DROP DATABASE IF EXISTS regression" -c "CREATE DATABASE regression TEMPLATE template0"
  sql -d regression -c "
    CREATE SCHEMA shuffle_ext;
    CREATE EXTENSION shuffle_ext SCHEMA shuffle_ext;
    ALTER DATABASE regression SET default_table_access_method = $1;
    ALTER DATABASE regression SET lock_timeout = '20s';
    ALTER DATABASE regression SET statement_timeout = '180s';
    ALTER DATABASE regression SET lc_messages = 'C';
    ALTER DATABASE regression SET timezone_abbreviations = 'Default';
    ALTER DATABASE regression SET bytea_output = 'hex'"
  mkdir "$WORK/$1"
  own_by_server "$WORK/$1" "$REGRESS"
  : >"$WORK/log/server"
  # every test differs from its expected output: that is not a failure here
  as_server "$pgxs/../test/regress/pg_regress" --bindir="$PG_BIN" --inputdir="$REGRESS" \
    --outputdir="$WORK/$1" --dlpath="$REGRESS" --use-existing --host="$WORK" "${TESTS[@]}" \
    >"$WORK/log/$1" 2>&1 || true
  cp "$WORK/log/server" "$WORK/log/server_$1"
  # objects of all databases that would be in the way of the next run
  sql -At -c "SELECT format('ROLLBACK PREPARED %L', gid) FROM pg_prepared_xacts" -d regression |
    while read -r command; do sql -d regression -c "$command"; done
  sql -c "DROP DATABASE regression"
  sql -At -c "SELECT format('DROP TABLESPACE %I', spcname) FROM pg_tablespace WHERE spcname LIKE 'regress%'
    UNION ALL SELECT format('DROP ROLE %I', rolname) FROM pg_roles WHERE rolname LIKE 'regress%'" |
    while read -r command; do sql -c "$command" >/dev/null 2>&1 || true; done
}

title "PostgreSQL $PG_MAJOR"
for method in heap shuffle; do
  say "${#TESTS[@]} tests with $method"
  run "$method"
done
python3 "$TOP/test/regression_classify.py" "$REGRESS/sql" "$WORK/heap/results" \
  "$WORK/shuffle/results" "$WORK/log/server_heap" "$WORK/log/server_shuffle" "${TESTS[@]}"
