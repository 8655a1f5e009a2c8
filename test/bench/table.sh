#!/bin/bash
# table.sh: a shuffle table filled and read with ordinary statements, beside a heap table.
OPTIONS_HELP='
  --partitions N   of the shuffle table (default 200)
  --sync on|off    of the shuffle table; the heap table is WAL-logged (default on)'
PARTITIONS=200 SYNC=on ROUNDS=3

bench_option() {
  case $1 in
    --partitions) PARTITIONS=$2 ;;
    --sync) SYNC=$2 ;;
    *) return 1 ;;
  esac
}

. "$(dirname "$0")/bench.sh"
bench_arguments "INSERT, COPY, CREATE TABLE AS and SELECT on shuffle and heap tables." "$@"
PGBENCH_SETTINGS="shuffle_ext.sync=$SYNC ${PGBENCH_SETTINGS:-}"
bench_prepare
mkdir "$WORK/times" "$WORK/files"
own_by_server "$WORK/files"

SERIAL=('SET max_parallel_workers_per_gather = 0' 'SET jit = off')
COUNTS=$(value "SELECT string_agg(format('count(%I)', attname), ', ' ORDER BY attnum)
  FROM pg_attribute WHERE attrelid = 'lineitem'::regclass AND attnum > 0 AND NOT attisdropped")
SAME="SELECT count(*), sum(l_quantity), sum(hashtext(l_comment)::bigint) FROM"
EXPECTED=$(value "$SAME lineitem")
sql -c "COPY lineitem TO '$WORK/files/lineitem.bin' (FORMAT binary)" \
  -c "COPY lineitem TO '$WORK/files/lineitem.text'"

# make shuffle|heap: an empty table t; LIKE does not take the access method.
make_table() {
  if [ "$1" = heap ]; then
    sql -c 'CREATE TABLE t (LIKE lineitem)'
  else
    sql -o /dev/null -c "SELECT shuffle_write('SELECT * FROM lineitem WHERE false', 't',
      partitions => $PARTITIONS, keys => '{l_orderkey}', codec => 'lz4')"
  fi
}

# fill KIND NAME SQL: into an empty table, which must hold lineitem then.
fill() {
  make_table "$1"
  sample "$2_$1" "${SERIAL[@]}" "$3"
  [ "$(value "$SAME t")" = "$EXPECTED" ] || die "$2, $1: the table differs from lineitem"
  sql -c 'DROP TABLE t' -c CHECKPOINT
}

read_all() { # KIND TABLE ONE: reads of a filled table; ONE reads one partition
  sample "all_$1" "${SERIAL[@]}" "SELECT $COUNTS FROM $2"
  sample "parallel_$1" 'SET jit = off' "SELECT $COUNTS FROM $2"
  sample "column_$1" "${SERIAL[@]}" "SELECT count(l_orderkey) FROM $2"
  sample "rows_$1" "${SERIAL[@]}" "SELECT count(*) FROM $2"
  sample "partition_$1" "${SERIAL[@]}" "$3" "$3"
}

# To read: filled once.  Beside partition 7 lies a heap table with the same rows.
sql -o /dev/null -c "SELECT shuffle_write('SELECT * FROM lineitem', 'read_shuffle',
  partitions => $PARTITIONS, keys => '{l_orderkey}', codec => 'lz4')"
sql -c 'CREATE TABLE read_heap (LIKE lineitem)' -c 'INSERT INTO read_heap SELECT * FROM lineitem' \
  -c 'CREATE TABLE by_hash (LIKE lineitem) PARTITION BY HASH (l_orderkey)' \
  -c "CREATE TABLE heap_7 AS SELECT * FROM lineitem
    WHERE satisfies_hash_partition('by_hash'::regclass, $PARTITIONS, 7 % $PARTITIONS, l_orderkey)"
sql -c 'VACUUM (FREEZE, ANALYZE) read_heap' -c 'VACUUM (FREEZE, ANALYZE) heap_7' -c 'ANALYZE read_shuffle'
[ "$(value "$SAME shuffle_read(NULL::read_shuffle, 7 % $PARTITIONS)")" = "$(value "$SAME heap_7")" ] ||
  die "partition 7 differs"

for ((round = 0; round <= ROUNDS; round++)); do
  [ $round != 1 ] || rm -f "$WORK"/times/* # round 0 warms up
  for kind in shuffle heap; do
    fill $kind insert 'INSERT INTO t SELECT * FROM lineitem'
    fill $kind copy_binary "COPY t FROM '$WORK/files/lineitem.bin' (FORMAT binary)"
    fill $kind copy_text "COPY t FROM '$WORK/files/lineitem.text'"
    sample ctas_$kind "${SERIAL[@]}" "CREATE TABLE t USING $kind AS SELECT * FROM lineitem"
    [ "$(value "$SAME t")" = "$EXPECTED" ] || die "CREATE TABLE AS, $kind: the table differs"
    sql -c 'DROP TABLE t' -c CHECKPOINT

    make_table $kind
    sample rows1000_$kind "DO \$\$ BEGIN FOR i IN 1..1000 LOOP
      INSERT INTO t SELECT * FROM lineitem LIMIT 1; COMMIT; END LOOP; END \$\$"
    sql -c 'DROP TABLE t'
  done
  read_all shuffle read_shuffle "SELECT $COUNTS FROM shuffle_read(NULL::read_shuffle, 7 % $PARTITIONS)"
  read_all heap read_heap "SELECT $COUNTS FROM heap_7"
done

both() { # NAME LABEL
  row "$1_heap" "$2: heap" "$1_heap"
  row "$1_shuffle" "$2: shuffle" "$1_heap"
}
heading "$PARTITIONS partitions, $ROUNDS rounds" heap
both insert "INSERT ... SELECT"
both copy_binary "COPY FROM, binary"
both copy_text "COPY FROM, text"
both ctas "CREATE TABLE AS (shuffle: one partition)"
both rows1000 "1,000 INSERTs of one row, each committed"
both all "all columns, serial"
both parallel "all columns, parallel"
both column "one column, serial"
both rows "count(*), serial"
both partition "one partition, all columns"
say
printf '%-58s %10s\n' "bytes: heap" "$(value "SELECT pg_relation_size('read_heap')")" \
  "bytes: shuffle" "$(value "SELECT shuffle_size('read_shuffle')")"
