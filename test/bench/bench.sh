# shellcheck shell=bash disable=SC2034
# bench.sh: what the benchmarks share.  Sourced.
#
# A script may define bench_option NAME VALUE, which returns 0 if it has taken an option
# with its value, 2 if the option has none, and 1 if it does not know it; OPTIONS_HELP
# describes them.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

ROWS=${ROWS:-6000000} ROUNDS=${ROUNDS:-5} SCALE='' CSV='' OPTIONS_HELP=${OPTIONS_HELP:-}

bench_usage() {
  cat <<EOF
usage: test/bench/$(basename "$0") [OPTION]...

$1

  --rows N       rows of the generated lineitem (default $ROWS)
  --tpch SCALE   TPC-H data from tpchgen-cli instead
  --rounds N     rounds; each runs every statement once, medians are reported (default $ROUNDS)
  --csv FILE     the table as comma-separated values, too
  --keep         leave server and files behind
$OPTIONS_HELP
The server has shared_buffers of a quarter of the memory and two processes per query;
settings in PGBENCH_SETTINGS ("name=value name=value") are added.
EOF
}

bench_arguments() {
  local about=$1 taken
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --rows) ROWS=${2//[_,]/} && shift ;;
      --tpch) SCALE=$2 && shift ;;
      --rounds) ROUNDS=$2 && shift ;;
      --csv) CSV=$(realpath -m "$2") && shift ;;
      --keep) KEEP=1 ;;
      -h | --help)
        bench_usage "$about"
        exit 0
        ;;
      *)
        taken=1
        if declare -F bench_option >/dev/null; then
          bench_option "$1" "${2:-}" && taken=0 || taken=$?
        fi
        if [ "$taken" = 1 ]; then
          bench_usage "$about" >&2
          exit 2
        fi
        [ "$taken" = 2 ] || shift
        ;;
    esac
    shift
  done
}

bench_prepare() {
  prepare
  build_and_install
  # shellcheck disable=SC2086 # settings are many words
  server_start shared_buffers="$(quarter_of_memory)MB" max_parallel_workers_per_gather=1 max_wal_size=16GB \
    checkpoint_timeout=1h autovacuum=off ${PGBENCH_SETTINGS:-}
  say "filling lineitem"
  if [ -n "$SCALE" ]; then load_tpch "$SCALE"; else load_lineitem "$ROWS"; fi
  sql -c 'CREATE EXTENSION shuffle_ext'
  value "SELECT format('PostgreSQL %s, %s cores, lineitem: %s rows, %s', current_setting('server_version'),
    $(nproc), to_char(count(*), 'FM999,999,999,999'), pg_size_pretty(pg_relation_size('lineitem')))
    FROM lineitem"
}

# ms SQL...: runs statements in one session; milliseconds of the last.
ms() {
  local arguments=() statement
  for statement; do arguments+=(-c "$statement"); done
  sql -c '\timing on' "${arguments[@]}" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | tail -n 1
}

# sample NAME SQL...: as ms, into NAME's list.
sample() {
  local name=$1
  shift
  ms "$@" >>"$WORK/times/$name"
}

stat_of() { # NAME: median minimum maximum
  sort -n "$WORK/times/$1" | awk '{ v[NR] = $1 }
    END { m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; print m, v[1], v[NR] }'
}
median() { stat_of "$1" | cut -d' ' -f1; }

# paired NAME BASE: the median over the rounds of NAME's time as a multiple of BASE's.
paired() {
  paste "$WORK/times/$1" "$WORK/times/$2" | awk '{ print $1 / $2 }' | sort -n | awk '{ v[NR] = $1 }
    END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# heading TITLE [BASE]; BASE says what the ratios are multiples of.
heading() {
  printf '\n%-58s %10s %10s %10s  %s\n' "$1" "median ms" min max "${2:+x of $2}"
  [ -z "$CSV" ] || echo "name,label,median_ms,min_ms,max_ms,rounds,ratio,ratio_to" >"$CSV"
}
row() { # NAME LABEL [BASE]
  local m lo hi x=''
  read -r m lo hi < <(stat_of "$1")
  [ -z "${3:-}" ] || x=$(printf '%.3f' "$(paired "$1" "$3")")
  printf '%-58s %10.1f %10.1f %10.1f  %s\n' "$2" "$m" "$lo" "$hi" "$x"
  [ -z "$CSV" ] || printf '%s,"%s",%s,%s,%s,%s,%s,%s\n' "$1" "${2//\"/\"\"}" "$m" "$lo" "$hi" \
    "$(wc -l <"$WORK/times/$1")" "$x" "${3:-}" >>"$CSV"
}

# target LABEL VALUE LIMIT UNIT: a figure beside what it must not exceed.
MISSED=0
target() {
  local verdict=${GREEN}met$PLAIN
  awk "BEGIN { exit !($2 <= $3) }" || {
    verdict=${RED}MISSED$PLAIN
    MISSED=$((MISSED + 1))
  }
  printf '%-58s %10.3f%s  at most %s%s  %s\n' "$1" "$2" "$4" "$3" "$4" "$verdict"
}
ratio() { awk "BEGIN { print $1 / $2 }"; }
