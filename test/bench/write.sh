#!/bin/bash
# write.sh: how fast shuffle_write is, beside COPY and a plain scan, and what memory it takes.
. "$(dirname "$0")/bench.sh"
bench_arguments "Time and memory of shuffle_write." "$@"
bench_prepare
need_packages python3
mkdir "$WORK/times" "$WORK/files"
own_by_server "$WORK/files"

LAST=$(value "SELECT attname FROM pg_attribute WHERE attrelid = 'lineitem'::regclass
  ORDER BY attnum DESC LIMIT 1")

# write PARTITIONS [CODEC [QUERY]]
write() {
  echo "SELECT count(*) FROM shuffle_write('${3:-SELECT * FROM lineitem}', 'target',
    partitions => $1, keys => '{1}', codec => '${2:-lz4}')"
}
OFF='SET shuffle_ext.sync = off'
SERIAL='SET max_parallel_workers_per_gather = 0'

drop_target() { sql -c 'DROP TABLE target'; }

# What writes files or fills row buffers runs twice, and the second time counts: a virtual
# machine may give memory back to its host that was free for two seconds (free page
# reporting), and then the first to touch it pays for that, many times what it costs
# otherwise.  What that is shows as NAME_first.
#
# sample_write NAME SETTING... WRITE: leaves the size of the table in BYTES[NAME].
declare -A BYTES
sample_write() {
  local name=$1
  shift
  sample "${name}_first" "$@"
  drop_target
  sample "$name" "$@"
  BYTES[$name]=$(value "SELECT shuffle_size('target')")
  drop_target
}
sample_copy() {
  local name
  for name in copy_first copy; do
    sample $name "COPY lineitem TO '$WORK/files/copy.bin' (FORMAT binary)"
    rm -f "$WORK/files/copy.bin"
  done
}

value 'SELECT count(*) FROM lineitem' >/dev/null # warm
for ((round = 0; round <= ROUNDS; round++)); do
  [ $round != 1 ] || rm -f "$WORK"/times/* # round 0 warms up
  sample_copy
  sample scan "SELECT count($LAST) FROM lineitem"
  sample_write write_off "$OFF" "$(write 200)"
  sample_write write_on "$(write 200)"
  sample_write write_8000 "$OFF" "$(write 8000)"
  sample_write write_1 "$OFF" "$(write 1)"
  sample_write zstd "$OFF" "$(write 200 zstd:1)"
  sample_write zstd_8000 "$OFF" "$(write 8000 zstd:1)"
  sample_write little "$OFF" "SET shuffle_ext.memory_limit = '16MB'" "$(write 200)"
  sample scan_serial "$SERIAL" "SELECT count($LAST) FROM lineitem"
  sample_write serial "$SERIAL" "$OFF" "$(write 200)"
done

heading "$ROUNDS rounds" "the second time"
row copy "COPY lineitem TO file (FORMAT binary)"
row scan "SELECT count($LAST) FROM lineitem, parallel"
row write_off "shuffle_write, 200 partitions, lz4, sync off"
row write_on "shuffle_write, 200 partitions, lz4, sync on"
row write_8000 "shuffle_write, 8000 partitions, lz4"
row write_off_first "  200 partitions, the first time in a round" write_off
row write_8000_first "  8000 partitions, the first time in a round" write_8000
row write_1 "shuffle_write, 1 partition, lz4"
row zstd "shuffle_write, 200 partitions, zstd:1"
row zstd_8000 "shuffle_write, 8000 partitions, zstd:1"
row little "shuffle_write, 200 partitions, lz4, memory_limit 16MB"
row scan_serial "SELECT count($LAST) FROM lineitem, serial"
row serial "shuffle_write, 200 partitions, lz4, serial"
printf '%-58s %10s\n' "bytes, 200 partitions" "${BYTES[write_off]}" \
  "bytes, 8000 partitions" "${BYTES[write_8000]}"

# limit LABEL NAME BASE LIMIT: the median of the rounds' ratios.
limit() { target "$1" "$(paired "$2" "$3")" "$4" x; }
say
say "two processes, sync off"
limit "shuffle_write / COPY" write_off copy 0.35
limit "the same, stretch" write_off copy 0.27
limit "shuffle_write / COPY, sync on" write_on copy 0.35
limit "shuffle_write / parallel scan of the last column" write_off scan 2.0
limit "the same, stretch" write_off scan 1.6
limit "8000 / 200 partitions, time" write_8000 write_off 1.15
limit "the same, stretch" write_8000 write_off 1.08
target "8000 / 200 partitions, bytes" "$(ratio "${BYTES[write_8000]}" "${BYTES[write_off]}")" 1.35 x
limit "1 / 200 partitions, time" write_1 write_off 1.0
limit "zstd:1 / lz4, 200 partitions" zstd write_off 1.25
limit "zstd:1 / lz4, 8000 partitions" zstd_8000 write_8000 2.0
limit "memory_limit 16MB / 256MB" little write_off 1.3
say "one process and its writer thread, sync off"
limit "shuffle_write / COPY" serial copy 0.36
limit "shuffle_write / serial scan of the last column" serial scan_serial 1.4

# Anonymous memory of every process of the server while one statement runs.
# peak LABEL SQL
peak() {
  local mb limit
  mb=$(as_server python3 "$BUILD/test/bench/peak_rss.py" "$(head -n 1 "$DATA/postmaster.pid")" \
    "$PG_BIN/psql" -X -q -v ON_ERROR_STOP=1 -o /dev/null -c "$2")
  limit=$(sql -At -c "LOAD 'shuffle_ext'" -c "SELECT setting::bigint / 1024 + 64
    FROM pg_settings WHERE name = 'shuffle_ext.memory_limit' AND unit = 'kB'")
  target "RssAnon, $1" "$mb" "$limit" " MB"
}
say
peak "200 partitions" "$(write 200)"
drop_target
peak "200 partitions, ten times the rows" \
  "$(write 200 lz4 'SELECT l.* FROM lineitem l, generate_series(1, 10)')"
drop_target
peak "100000 partitions" "$(write 100000)"
drop_target
sql -c "DO \$\$ BEGIN EXECUTE 'CREATE TABLE wide AS SELECT ' ||
  (SELECT string_agg(format('(i + %s) %% 1000 AS c%s', n, n), ',') FROM generate_series(1, 1600) n) ||
  ' FROM generate_series(1, 100000) i'; END \$\$"
peak "1600 columns" "$(write 200 lz4 'TABLE wide')"
drop_target
exit $((MISSED > 0))
