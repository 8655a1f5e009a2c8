#!/bin/bash
# read.sh: how fast a shuffle table is read, beside the heap table it was made of.
. "$(dirname "$0")/bench.sh"
bench_arguments "Time of reading a shuffle table." "$@"
bench_prepare
mkdir "$WORK/times"

COUNTS=$(value "SELECT string_agg(format('count(%I)', attname), ', ' ORDER BY attnum)
  FROM pg_attribute WHERE attrelid = 'lineitem'::regclass AND attnum > 0 AND NOT attisdropped")
for partitions in 200 100000; do
  sql -o /dev/null -c "SELECT count(*) FROM shuffle_write('SELECT * FROM lineitem', 'p$partitions',
    partitions => $partitions, keys => '{1}', codec => 'lz4')"
done
same="SELECT count(*), sum(l_quantity), sum(hashtext(l_comment)::bigint) FROM"
[ "$(value "$same lineitem")" = "$(value "$same p200")" ] || die "p200 is not lineitem"
[ "$(value "$same lineitem")" = "$(value "$same p100000")" ] || die "p100000 is not lineitem"

serial=('SET max_parallel_workers_per_gather = 0' 'SET jit = off')
for ((round = 0; round <= ROUNDS; round++)); do
  [ $round != 1 ] || rm -f "$WORK"/times/* # round 0 warms up
  sample heap "${serial[@]}" "SELECT $COUNTS FROM lineitem"
  sample table "${serial[@]}" "SELECT $COUNTS FROM p200"
  sample table_alone "${serial[@]}" "SET shuffle_ext.read_ahead = off" "SELECT $COUNTS FROM p200"
  sample heap_one "${serial[@]}" "SELECT count(l_orderkey) FROM lineitem"
  sample table_one "${serial[@]}" "SELECT count(l_orderkey) FROM p200"
  sample heap_two "${serial[@]}" "SELECT count(l_orderkey), count(l_partkey) FROM lineitem"
  sample table_two "${serial[@]}" "SELECT count(l_orderkey), count(l_partkey) FROM p200"
  sample heap_rows "${serial[@]}" "SELECT count(*) FROM lineitem"
  sample table_rows "${serial[@]}" "SELECT count(*) FROM p200"
  sample heap_parallel "SELECT $COUNTS FROM lineitem"
  sample table_parallel "SELECT $COUNTS FROM p200"
  # where the session is warm, a statement before has loaded the library and the caches
  sample read_200 "${serial[@]}" "SELECT $COUNTS FROM shuffle_read(NULL::p200, 70)" \
    "SELECT $COUNTS FROM shuffle_read(NULL::p200, 7)"
  sample list_200 "${serial[@]}" "SELECT count(r) FROM (SELECT shuffle_read(NULL::p200, 70) r) s" \
    "SELECT count(r) FROM (SELECT shuffle_read(NULL::p200, 7) r) s"
  sample key_200 "${serial[@]}" "SELECT $COUNTS FROM p200 WHERE l_orderkey = 70" \
    "SELECT $COUNTS FROM p200 WHERE l_orderkey = 7"
  sample fetch_200 "${serial[@]}" "SELECT count(*) FROM shuffle_fetch('p200', 70)" \
    "SELECT count(*) FROM shuffle_fetch('p200', 7)"
  sample read_100000 "${serial[@]}" "SELECT $COUNTS FROM shuffle_read(NULL::p100000, 70707)" \
    "SELECT $COUNTS FROM shuffle_read(NULL::p100000, $((round * 7919 + 1)))"
  sample fetch_100000 "${serial[@]}" "SELECT count(*) FROM shuffle_fetch('p100000', 70707)" \
    "SELECT count(*) FROM shuffle_fetch('p100000', $((round * 7919 + 1)))"
done

# cold NAME TABLE FILE...: a scan right after the start of the server, with none of the files in
# the page cache.  Its milliseconds go to NAME's list, the bytes that it read to NAME_bytes'.
cold() {
  local name=$1 table=$2 file
  local bytes="SELECT substring(pg_read_file('/proc/self/io') FROM '\nread_bytes: (\d+)')"
  shift 2
  server_stop
  sync
  for file; do dd if="$file" iflag=nocache count=0 status=none; done
  server_run
  sql -At -c "${serial[0]}" -c "${serial[1]}" -c "$bytes" -c '\timing on' \
    -c "SELECT $COUNTS FROM $table" -c '\timing off' -c "$bytes" >"$WORK/cold"
  sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' "$WORK/cold" >>"$WORK/times/$name"
  grep -x '[0-9]*' "$WORK/cold" | paste -s | awk '{ print $2 - $1 }' >>"$WORK/times/${name}_bytes"
}
mapfile -t heap_files < <(ls "$DATA/$(value "SELECT pg_relation_filepath('lineitem')")"*)
mapfile -t table_files < <(value "SELECT '$DATA/' || path FROM shuffle_segments WHERE relation = 'p200'::regclass")
for ((round = 0; round < ROUNDS; round++)); do
  cold heap_cold lineitem "${heap_files[@]}"
  cold table_cold p200 "${table_files[@]}"
done

heading "$ROUNDS rounds"
row heap "all columns, serial: lineitem (heap)"
row table "all columns, serial: 200 partitions"
row table_alone "the same without read_ahead"
row heap_one "first column, serial: lineitem (heap)"
row table_one "first column, serial: 200 partitions"
row heap_two "first two columns, serial: lineitem (heap)"
row table_two "first two columns, serial: 200 partitions"
row heap_rows "count(*), serial: lineitem (heap)"
row table_rows "count(*), serial: 200 partitions"
row heap_cold "all columns, serial, not cached: lineitem (heap)"
row table_cold "all columns, serial, not cached: 200 partitions"
row heap_parallel "all columns, parallel: lineitem (heap)"
row table_parallel "all columns, parallel: 200 partitions"
row read_200 "shuffle_read in FROM, one partition of 200"
row list_200 "shuffle_read in the select list, one partition of 200"
row key_200 "WHERE on the key, 200 partitions"
row fetch_200 "shuffle_fetch, one partition of 200"
row read_100000 "shuffle_read, one partition of 100000"
row fetch_100000 "shuffle_fetch, one partition of 100000"
say
target "all columns, shuffle / heap" "$(paired table heap)" 0.75 x
target "the first two columns, shuffle / heap" "$(paired table_two heap_two)" 0.5 x
target "bytes read when not cached, shuffle / heap" "$(paired table_cold_bytes heap_cold_bytes)" 1 x
target "one partition of 200 / all, in FROM" "$(paired read_200 table)" 0.02 x
target "one partition of 200 / all, in the select list" "$(paired list_200 table)" 0.02 x
target "one partition of 100000, shuffle_read" "$(median read_100000)" 5 " ms"
target "one partition of 100000, shuffle_fetch" "$(median fetch_100000)" 5 " ms"
exit $((MISSED > 0))
