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
  sample fetch_200 "${serial[@]}" "SELECT count(*) FROM shuffle_fetch('p200', 70)" \
    "SELECT count(*) FROM shuffle_fetch('p200', 7)"
  sample read_100000 "${serial[@]}" "SELECT $COUNTS FROM shuffle_read(NULL::p100000, 70707)" \
    "SELECT $COUNTS FROM shuffle_read(NULL::p100000, $((round * 7919 + 1)))"
  sample fetch_100000 "${serial[@]}" "SELECT count(*) FROM shuffle_fetch('p100000', 70707)" \
    "SELECT count(*) FROM shuffle_fetch('p100000', $((round * 7919 + 1)))"
done

heading "$ROUNDS rounds"
row heap "all columns, serial: lineitem (heap)"
row table "all columns, serial: 200 partitions"
row heap_one "first column, serial: lineitem (heap)"
row table_one "first column, serial: 200 partitions"
row heap_two "first two columns, serial: lineitem (heap)"
row table_two "first two columns, serial: 200 partitions"
row heap_rows "count(*), serial: lineitem (heap)"
row table_rows "count(*), serial: 200 partitions"
row heap_parallel "all columns, parallel: lineitem (heap)"
row table_parallel "all columns, parallel: 200 partitions"
row read_200 "shuffle_read in FROM (spools), one partition of 200"
row list_200 "shuffle_read in the select list, one partition of 200"
row fetch_200 "shuffle_fetch, one partition of 200"
row read_100000 "shuffle_read, one partition of 100000"
row fetch_100000 "shuffle_fetch, one partition of 100000"
say
target "all columns, shuffle / heap" "$(paired table heap)" 0.75 x
target "the first two columns, shuffle / heap" "$(paired table_two heap_two)" 0.5 x
target "one partition of 200 / all, in FROM" "$(paired read_200 table)" 0.02 x
target "one partition of 200 / all, in the select list" "$(paired list_200 table)" 0.02 x
target "one partition of 100000, shuffle_read" "$(median read_100000)" 5 " ms"
target "one partition of 100000, shuffle_fetch" "$(median fetch_100000)" 5 " ms"
exit $((MISSED > 0))
