#!/bin/bash
# check.sh: runs every test of shuffle_ext on a throw-away server.
. "$(dirname "$0")/lib.sh"

SUITES="format compile headers engine regress isolation tap interop majors"

usage() {
  cat <<EOF
usage: test/check.sh [--only SUITE,...] [--strict] [--keep]

Installs what is missing (apt), builds a copy of the sources, runs all suites on a
throw-away copy of PostgreSQL and prints "N passed, N failed, N skipped" as last line.

  --only SUITE,...  some of: ${SUITES// /, }
  --strict          what would be skipped fails (the default where CI=true)
  --keep            leave the temporary directory with logs and results behind

  format     the C sources are as clang-format 14 leaves them; shellcheck
  compile    gcc and clang, -Wall -Wextra -Werror
  headers    compiles against the server headers of the other supported majors
  engine     unit tests, sanitizers and fuzzing of src/engine, no server
  regress    pg_regress: sql/, expected/
  isolation  test/isolation: sessions side by side
  tap        test/t: restarts, crashes, workers, memory
  interop    test/interop: pyarrow, Polars, DuckDB and DataFusion read what we wrote
  majors     compile, regress, isolation and tap on PostgreSQL 17 and 18, each in a
             Debian of its own (root and debootstrap; test/check_majors.sh)

PG_MAJOR picks the PostgreSQL version, TMPDIR where the temporary directory goes.
EOF
}

ONLY=${SUITES// /,}
STRICT=''
[ "${CI:-}" != true ] || STRICT=1
while [ $# -gt 0 ]; do
  case $1 in
    --only)
      ONLY=${2:?--only needs a list of suites}
      shift
      ;;
    --only=*) ONLY=${1#--only=} ;;
    --strict) STRICT=1 ;;
    --keep) KEEP=1 ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
  shift
done
for suite in ${ONLY//,/ }; do
  case " $SUITES " in *" $suite "*) ;; *) die "no suite \"$suite\"; there are: $SUITES" ;; esac
done
wanted() { case ",$ONLY," in *",$1,"*) ;; *) return 1 ;; esac; }

# ------------------------------------------------------------------ counting

FAILURES=()

pass() {
  PASSED=$((PASSED + 1))
  say "${GREEN}ok${PLAIN}    $1"
}

fail() {
  FAILED=$((FAILED + 1))
  FAILURES+=("$1")
  say "${RED}FAIL${PLAIN}  $1"
}

skip() { # NAME REASON
  if [ -n "$STRICT" ]; then
    fail "$1 (must not be skipped here: $2)"
  else
    SKIPPED=$((SKIPPED + 1))
    say "${DIM}skip${PLAIN}  $1: $2"
  fi
}

# verdict NAME COMMAND...: one test that passes when the command succeeds.
verdict() {
  local name=$1 log
  shift
  log=$WORK/log/$(printf %s "$name" | tr -c 'A-Za-z0-9' _)
  if "$@" >"$log" 2>&1; then
    pass "$name"
  else
    tail -n 40 "$log"
    fail "$name"
  fi
}

# tally SUITE LOG STATUS: counts the results a test program printed, TAP or the format
# of pg_regress before 16.  A program that failed without naming a test counts as one
# failure, and so does one that ran no test.
tally() {
  local suite=$1 log=$2 status=$3 good=0 bad=0 line name
  while IFS= read -r line; do
    case $line in
      "ok "*" # "[sS][kK][iI][pP]*)
        name=${line#ok * }
        skip "$suite: ${name%%#*}" "${line##*# }"
        ;;
      "not ok "*" # "[tT][oO][dD][oO]*) good=$((good + 1)) ;;
      "ok "[0-9]* | "test "*" ... ok "* | "     "*" ... ok "*) good=$((good + 1)) ;;
      "not ok "[0-9]* | "test "*" ... FAILED"* | "     "*" ... FAILED"*)
        bad=$((bad + 1))
        fail "$suite: $(printf %s "$line" | sed 's/^not ok [0-9]* *-* *//; s/^test *//; s/ *\.\.\. FAILED.*//; s/ \{2,\}[0-9]* ms$//')"
        ;;
    esac
  done <"$log"
  PASSED=$((PASSED + good))
  if [ "$status" != 0 ] && [ "$bad" = 0 ]; then
    tail -n 60 "$log"
    fail "$suite: ended with status $status"
  elif [ $((good + bad)) = 0 ]; then
    tail -n 60 "$log"
    fail "$suite: no test was run"
  fi
  say "${GREEN}ok${PLAIN}    $suite: $good"
}

finish() {
  local name
  say
  if [ "$FAILED" -gt 0 ]; then
    say "failed:"
    for name in "${FAILURES[@]}"; do say "  $name"; done
    say
  fi
  totals
  [ "$FAILED" = 0 ] && [ $((PASSED + SKIPPED)) -gt 0 ]
}

# ------------------------------------------------------------------ compiling

# compile_all COMPILER INCLUDEDIR [FLAG...]: every source file, warnings are errors.
compile_all() {
  local compiler=$1 include=$2 flags file status=0
  shift 2
  # shellcheck disable=SC2016 # make expands
  flags=$(make -s -C "$BUILD" PG_CONFIG="$PG_CONFIG" WERROR=1 \
    --eval='show_flags:; @echo $(PG_CFLAGS)' show_flags | tail -n 1)
  for file in "$BUILD"/src/engine/*.c "$BUILD"/src/pg/*.c; do
    # shellcheck disable=SC2086 # flags are many words
    "$compiler" $flags "$@" -fPIC -D_GNU_SOURCE -I"$include" -c -o /dev/null "$file" || status=1
  done
  return $status
}

suite_format() {
  title "format"
  need_packages shellcheck
  verdict "shellcheck" shellcheck "$BUILD"/.ci/run "$BUILD"/test/*.sh "$BUILD"/test/bench/*.sh
  command -v clang-format-14 >/dev/null || (need_packages clang-format-14) || {
    skip "clang-format 14" "this Debian has another version"
    return
  }
  verdict "clang-format 14" clang-format-14 --dry-run -Werror "$BUILD"/src/*/*.[ch] \
    "$BUILD"/test/*/*.[ch]
}

suite_compile() {
  title "compile"
  need_packages clang
  verdict "gcc, PostgreSQL $PG_MAJOR" compile_all gcc "$("$PG_CONFIG" --includedir-server)"
  # the server's headers, configured by gcc, ask for gcc's own printf attribute
  verdict "clang, PostgreSQL $PG_MAJOR" compile_all clang "$("$PG_CONFIG" --includedir-server)" \
    -Wno-ignored-attributes
}

# fetch_headers MAJOR RELEASE: unpacks the server headers of another Debian release
# into $WORK/headers/MAJOR, with an apt configuration of our own; installs nothing.
fetch_headers() {
  local dir=$WORK/headers/$1 release=$2 site
  local key=/usr/share/keyrings/debian-archive-keyring.gpg
  mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
  site=$(debian_mirror) || return 1
  {
    echo "deb [signed-by=$key] $site $release main"
    [ "$release" = testing ] ||
      echo "deb [signed-by=$key] ${site%/*}/debian-security $release-security main"
  } >"$dir/sources.list"
  local apt=(-o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=/nonexistent
    -o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir/cache" -o Dir::State::status=/dev/null
    -o APT::Sandbox::User=root -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
  apt-get "${apt[@]}" -q update
  (cd "$dir" && apt-get "${apt[@]}" -q download "postgresql-server-dev-$1") &&
    dpkg-deb -x "$dir"/postgresql-server-dev-*.deb "$dir"
}

suite_headers() {
  title "headers"
  local pair major
  mkdir "$WORK/headers"
  # those headers were configured for a C library that declares these two
  printf '#include <stddef.h>\nextern size_t %s;\nextern size_t %s;\n' \
    'strlcpy(char *, const char *, size_t)' 'strlcat(char *, const char *, size_t)' \
    >"$WORK/headers/libc.h"
  for pair in 17:trixie 18:testing; do
    major=${pair%:*}
    [ "$major" != "$PG_MAJOR" ] || continue
    if fetch_headers "$major" "${pair#*:}" >"$WORK/log/fetch_headers_$major" 2>&1; then
      verdict "gcc, headers of PostgreSQL $major" \
        compile_all gcc "$WORK/headers/$major/usr/include/postgresql/$major/server" \
        -include "$WORK/headers/libc.h"
    else
      skip "headers of PostgreSQL $major" "postgresql-server-dev-$major cannot be fetched"
    fi
  done
}

# ------------------------------------------------------------------ suites

suite_engine() {
  title "engine"
  local status=0
  need_packages clang libclang-rt-dev
  as_server make -C "$BUILD/test/engine" check >"$WORK/log/engine" 2>&1 || status=$?
  tally engine "$WORK/log/engine" $status
  status=0
  as_server make -C "$BUILD/test/engine" check-threads >"$WORK/log/engine_threads" 2>&1 || status=$?
  tally "engine, ThreadSanitizer" "$WORK/log/engine_threads" $status
  verdict "engine: libFuzzer for 30 seconds" \
    as_server make -C "$BUILD/test/engine" fuzz FUZZ_SECONDS=30
}

SERVER_STARTED=''
need_server() {
  [ -z "$SERVER_STARTED" ] || return 0
  server_start fsync=off max_prepared_transactions=10 max_worker_processes=16
  SERVER_STARTED=1
}

suite_regress() {
  title "regress"
  local status=0
  need_server
  as_server make -C "$BUILD" PG_CONFIG="$PG_CONFIG" installcheck ISOLATION= \
    >"$WORK/log/regress" 2>&1 || status=$?
  [ ! -s "$BUILD/regression.diffs" ] || head -n 300 "$BUILD/regression.diffs"
  tally regress "$WORK/log/regress" $status
}

suite_isolation() {
  title "isolation"
  local status=0
  need_server
  as_server make -C "$BUILD" PG_CONFIG="$PG_CONFIG" installcheck REGRESS= \
    >"$WORK/log/isolation" 2>&1 || status=$?
  [ ! -s "$BUILD/output_iso/regression.diffs" ] ||
    head -n 300 "$BUILD/output_iso/regression.diffs"
  tally isolation "$WORK/log/isolation" $status
}

suite_tap() {
  title "tap"
  local status=0 pgxs
  need_packages perl libipc-run-perl
  pgxs=$(dirname "$("$PG_CONFIG" --pgxs)")/..
  # shellcheck disable=SC2016 # the inner shell expands
  as_server env -u PGHOST -u PGPORT -u PGUSER -u PGDATABASE sh -c 'cd "$1" && shift && exec "$@"' \
    sh "$BUILD" env PATH="$PG_BIN:$PATH" TESTDIR="$BUILD" TESTDATADIR="$BUILD/tmp_check" \
    TESTLOGDIR="$BUILD/tmp_check/log" PG_REGRESS="$pgxs/test/regress/pg_regress" \
    top_builddir="$BUILD" TMPDIR="$WORK" ${KEEP:+PG_TEST_NOCLEAN=1} \
    prove -v -I "$pgxs/test/perl" -I test/t "$BUILD"/test/t/*.pl >"$WORK/log/tap" 2>&1 || status=$?
  tally tap "$WORK/log/tap" $status
  [ $status = 0 ] || grep -E '^(not ok|# |Bail|.*Dubious|.*Failed)' "$WORK/log/tap" | tail -n 60
}

suite_interop() {
  title "interop"
  local status=0
  if ! make_venv -r "$BUILD/test/interop/requirements.txt"; then
    tail -n 5 "$WORK/log/pip"
    skip interop "pyarrow, Polars, DuckDB and DataFusion cannot be had from PyPI"
    return
  fi
  need_server
  as_server "$WORK/venv/bin/python" "$BUILD/test/interop/interop.py" \
    >"$WORK/log/interop" 2>&1 || status=$?
  tally interop "$WORK/log/interop" $status
  [ $status = 0 ] || grep -v '^ok ' "$WORK/log/interop" | tail -n 100
}

suite_majors() {
  title "majors"
  local status=0 failed=$FAILED
  if [ "$(id -u)" != 0 ]; then
    skip majors "needs root: run test/check_majors.sh"
    return
  fi
  "$BUILD/test/check_majors.sh" >"$WORK/log/majors" 2>&1 || status=$?
  cat "$WORK/log/majors"
  if add_totals "$(tail -n 1 "$WORK/log/majors")"; then
    [ "$FAILED" = "$failed" ] || FAILURES+=("majors: see above")
  else
    fail "majors: ended with status $status"
  fi
}

prepare
title "build"
say "PostgreSQL $PG_MAJOR"
verdict "make, PostgreSQL $PG_MAJOR" build
[ "$FAILED" = 0 ] || { finish || exit 1; }
for suite in $SUITES; do
  if wanted "$suite"; then "suite_$suite"; fi
done
finish
