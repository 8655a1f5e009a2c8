#!/bin/bash
# versus.sh: lineitem into N partitions by hash of its order key, with shuffle_write and
# with what people use today.
OPTIONS_HELP='
  --partitions N   default 64
  --no-clients     leave out the Python clients (ADBC, connectorx)
  --citus          add worker_partition_query_result of Citus, which must be installed'
PARTITIONS=64 CLIENTS=1 CITUS='' ROUNDS=3

bench_option() {
  case $1 in
    --partitions) PARTITIONS=$2 ;;
    --no-clients) CLIENTS='' && return 2 ;;
    --citus) CITUS=1 && return 2 ;;
    *) return 1 ;;
  esac
}

. "$(dirname "$0")/bench.sh"
bench_arguments "One table into many partitions: shuffle_write beside other ways." "$@"
[ -z "$CITUS" ] || PGBENCH_SETTINGS="shared_preload_libraries=citus ${PGBENCH_SETTINGS:-}"
bench_prepare
need_packages gawk
mkdir "$WORK/times" "$WORK/files"
own_by_server "$WORK/files"
if [ -n "$CLIENTS" ]; then
  make_venv adbc-driver-postgresql connectorx pyarrow polars ||
    die "the Python clients cannot be installed; --no-clients leaves them out"
fi
[ -z "$CITUS" ] || sql -c 'CREATE EXTENSION citus'

SERIAL='SET max_parallel_workers_per_gather = 0'
CORES=$(nproc)

shuffle() { # NAME SETTING...: one shuffle_write, whose size is kept
  local name=$1
  shift
  sample "$name" "$@" "SELECT count(*) FROM shuffle_write('SELECT * FROM lineitem', 'target',
    partitions => $PARTITIONS, keys => '{l_orderkey}', codec => 'lz4')"
  value "SELECT shuffle_size('target')" >"$WORK/bytes_$name"
  sql -c 'DROP TABLE target'
}

# files NAME COMMAND...: milliseconds of a command that leaves files in $WORK/files.
files() {
  local name=$1 begun
  shift
  begun=$(date +%s%N)
  "$@"
  echo $((($(date +%s%N) - begun) / 1000))e-3 >>"$WORK/times/$name"
  du -sb "$WORK/files" | cut -f1 >"$WORK/bytes_$name"
  find "$WORK/files" -mindepth 1 -delete
}

# One scan per partition, as many at a time as there are cores.
filtered() {
  seq 0 $((PARTITIONS - 1)) | as_server xargs -P "$CORES" -I{} "$PG_BIN/psql" -X -q -o /dev/null \
    -v ON_ERROR_STOP=1 -c "$SERIAL" -c "COPY (SELECT * FROM lineitem WHERE
      satisfies_hash_partition('by_hash'::regclass, $PARTITIONS, {}, l_orderkey))
      TO '$WORK/files/p{}.bin' (FORMAT binary)"
}

splitter() {
  sql -c "COPY lineitem TO PROGRAM 'gawk -F''\\t'' ''{ print > (\"$WORK/files/p\" (\$1 % $PARTITIONS)) }'''"
}

hash_partitions() { # NAME UNLOGGED
  sql -c "CREATE TABLE hashed (LIKE lineitem) PARTITION BY HASH (l_orderkey)"
  for ((p = 0; p < PARTITIONS; p++)); do
    echo "CREATE $2 TABLE hashed_$p PARTITION OF hashed FOR VALUES WITH (MODULUS $PARTITIONS, REMAINDER $p);"
  done | sql
  sample "$1" "INSERT INTO hashed SELECT * FROM lineitem"
  value "SELECT sum(pg_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'hashed'::regclass" \
    >"$WORK/bytes_$1"
  sql -c 'DROP TABLE hashed'
}

client() { # METHOD
  files "$1" as_server "$WORK/venv/bin/python" "$BUILD/test/bench/versus_client.py" "$1" \
    "$WORK" "$PARTITIONS" "$WORK/files"
}

# The ranges of hash values that Citus would give so many shards.
citus_partition() {
  sample citus "BEGIN" "SELECT count(*), sum(rows_written) FROM worker_partition_query_result('bench',
    'SELECT * FROM lineitem', 0, 'hash',
    (SELECT array_agg(((-2147483648) + i * (4294967296 / $PARTITIONS))::text ORDER BY i)
      FROM generate_series(0::bigint, $PARTITIONS - 1) i),
    (SELECT array_agg((CASE i WHEN $PARTITIONS - 1 THEN 2147483647
        ELSE (-2147483648) + (i + 1) * (4294967296 / $PARTITIONS) - 1 END)::text ORDER BY i)
      FROM generate_series(0::bigint, $PARTITIONS - 1) i), true)"
}

sql -c 'CREATE TABLE by_hash (LIKE lineitem) PARTITION BY HASH (l_orderkey)'
value 'SELECT count(*) FROM lineitem' >/dev/null # warm
for ((round = 0; round <= ROUNDS; round++)); do
  [ $round != 1 ] || rm -f "$WORK"/times/* # round 0 warms up
  shuffle shuffle 'SET shuffle_ext.sync = off'
  shuffle shuffle_sync
  shuffle shuffle_serial 'SET shuffle_ext.sync = off' "$SERIAL"
  files copy sql -c "COPY lineitem TO '$WORK/files/copy.bin' (FORMAT binary)"
  files filtered filtered
  files splitter splitter
  hash_partitions hashed ''
  hash_partitions hashed_unlogged UNLOGGED
  if [ -n "$CLIENTS" ]; then
    client adbc
    client connectorx
  fi
  if [ -n "$CITUS" ]; then citus_partition; fi
done

heading "$PARTITIONS partitions, $ROUNDS rounds" shuffle_write
row shuffle "shuffle_write, lz4, parallel, sync off" shuffle
row shuffle_sync "shuffle_write, lz4, parallel, sync on" shuffle
row shuffle_serial "shuffle_write, lz4, one process, sync off" shuffle
row copy "COPY to one binary file: not partitioned" shuffle
row filtered "$PARTITIONS filtered COPYs, $CORES at a time" shuffle
row splitter "COPY TO PROGRAM, split by gawk" shuffle
row hashed "INSERT into hash partitions" shuffle
row hashed_unlogged "INSERT into unlogged hash partitions" shuffle
if [ -n "$CLIENTS" ]; then
  row adbc "ADBC, pyarrow dataset of lz4 Arrow files" shuffle
  row connectorx "connectorx, $CORES connections, Polars lz4 Arrow files" shuffle
fi
if [ -n "$CITUS" ]; then row citus "Citus: worker_partition_query_result" shuffle; fi
say
for name in shuffle copy filtered splitter hashed adbc connectorx; do
  [ ! -f "$WORK/bytes_$name" ] || printf '%-58s %10s\n' "bytes: $name" "$(cat "$WORK/bytes_$name")"
done
