#!/bin/bash
# matrix.sh: shuffle_write over partitions x codecs x processes x memory limits, with the
# flags and the block of metrics of the shuffle_bench programs of Comet and Ballista.
OPTIONS_HELP='
  --input ITEM             what is written, as in FROM: a table, or (SELECT ...) x
                           (default lineitem)
  --partitions LIST        default 1,16,200,2000,8000
  --partitioning METHOD    hash, range, round-robin or single (default hash)
  --hash-columns LIST      key columns of hash and range, positions from 0 (default 0)
  --codec LIST             none, lz4, lz4:N, zstd:N (default none,lz4,zstd:1)
  --memory-limit LIST      of each process (default 256MB)
  --concurrency LIST       processes that write (default 1,2)
  --batch-size N           rows of a block (default 8192)
  --limit N                rows of the input, 0: all (default 0)
  --iterations N           the same as --rounds
  --warmup N               iterations before, not counted (default 1)
  --sync on|off            default off: what is compared does not sync either
  --read-back              verify every result of the last iteration, and count its rows'
PARTITIONS=1,16,200,2000,8000 METHOD=hash COLUMNS_=0 CODECS=none,lz4,zstd:1
MEMORY=256MB PROCESSES=1,2 INPUT=lineitem BATCH=8192 LIMIT=0 WARMUP=1 SYNC=off READ_BACK=''
ROUNDS=3

bench_option() {
  case $1 in
    --input) INPUT=$2 ;;
    --partitions) PARTITIONS=$2 ;;
    --partitioning) METHOD=$2 ;;
    --hash-columns) COLUMNS_=$2 ;;
    --codec) CODECS=$2 ;;
    --memory-limit) MEMORY=$2 ;;
    --concurrency) PROCESSES=$2 ;;
    --batch-size) BATCH=$2 ;;
    --limit) LIMIT=$2 ;;
    --iterations) ROUNDS=$2 ;;
    --warmup) WARMUP=$2 ;;
    --sync) SYNC=$2 ;;
    --read-back) READ_BACK=1 && return 2 ;;
    *) return 1 ;;
  esac
}

. "$(dirname "$0")/bench.sh"
bench_arguments "Time, metrics and size of shuffle_write, over a matrix of settings." "$@"
case $METHOD in
  hash | range) KEYS="'{$(echo "$COLUMNS_" | tr , '\n' | awk '{ print $1 + 1 }' | paste -sd,)}'" ;;
  single) KEYS=NULL PARTITIONS=1 ;;
  round-robin) KEYS=NULL METHOD=round_robin ;;
  *) die "unknown partitioning \"$METHOD\": hash, range, round-robin or single" ;;
esac
bench_prepare
need_packages python3

QUERY="SELECT * FROM $INPUT"
[ "$LIMIT" = 0 ] || QUERY="$QUERY LIMIT $LIMIT"
RUNS=$WORK/runs.tsv
: >"$RUNS"

# run PARTITIONS CODEC PROCESSES MEMORY: one line of the run's settings, seconds and metrics.
run() {
  local most=$(($3 > 1 ? $3 - 1 : 0))
  sql -At -F $'\t' -o /dev/null -v q="$QUERY" <<EOF
SET max_parallel_workers_per_gather = $most;
SET max_parallel_workers = $((most > 8 ? most : 8));
SET shuffle_ext.memory_limit = '$4';
SET shuffle_ext.block_rows = $BATCH;
SET shuffle_ext.sync = $SYNC;
SET client_min_messages = warning;
SELECT clock_timestamp() AS begun \gset
SELECT count(*) FROM shuffle_write(:'q', 'bench_target', partitions => $1, method => '$METHOD',
  keys => $KEYS, codec => '$2', workers => $most);
SELECT extract(epoch FROM clock_timestamp() - :'begun') AS seconds \gset
\o $WORK/run
SELECT $1, '$2', $3, '$4', :seconds, (SELECT count(*) - 1 FROM shuffle_write_stats()), s.*
FROM shuffle_write_stats() s WHERE process IS NULL;
\o
EOF
  cat "$WORK/run"
}

say "$METHOD${KEYS:+, columns $KEYS}, blocks of up to $BATCH rows, sync $SYNC, $ROUNDS iterations, $WARMUP warm-up"

: >"$WORK/run"
own_by_server "$WORK/run"
value "SELECT count(*) FROM $INPUT" >/dev/null # warm
for ((round = -WARMUP; round < ROUNDS; round++)); do
  for memory in ${MEMORY//,/ }; do
    for processes in ${PROCESSES//,/ }; do
      for codec in ${CODECS//,/ }; do
        for partitions in ${PARTITIONS//,/ }; do
          line=$(run "$partitions" "$codec" "$processes" "$memory")
          [ -n "$line" ] || die "no result for $partitions partitions, $codec"
          [ $round -lt 0 ] || printf '%s\n' "$line" >>"$RUNS"
          if [ -n "$READ_BACK" ] && [ $round = $((ROUNDS - 1)) ]; then
            bad=$(value "SELECT count(*) FROM shuffle_verify('bench_target') WHERE error IS NOT NULL")
            [ "$bad" = 0 ] || die "$bad damaged files: $partitions partitions, $codec"
            [ "$(value "SELECT count(*) FROM bench_target")" = \
              "$(value "SELECT count(*) FROM ($QUERY) q")" ] || die "rows differ: $partitions, $codec"
          fi
          sql -c 'DROP TABLE bench_target'
        done
      done
    done
  done
done
python3 "$BUILD/test/bench/matrix_report.py" "$RUNS" ${CSV:+"$CSV"}
