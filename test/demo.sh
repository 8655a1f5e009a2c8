#!/bin/bash
# demo.sh: the main job on real input, on a throw-away server.
. "$(dirname "$0")/lib.sh"

usage() {
  cat <<EOF
usage: test/demo.sh [ROWS | --tpch SCALE]

Installs what is missing (apt), builds shuffle_ext, starts a throw-away PostgreSQL, and
partitions, indexes and reads back a lineitem table.

  ROWS          rows of a generated, TPC-H-shaped lineitem (default 1000000)
  --tpch SCALE  real TPC-H data from tpchgen-cli (PyPI); scale 1 is 6 million rows
EOF
}

ROWS=1000000 SCALE=''
case ${1:-} in
  '') ;;
  -h | --help)
    usage
    exit 0
    ;;
  --tpch) SCALE=${2:-1} ;;
  --tpch=*) SCALE=${1#--tpch=} ;;
  *) ROWS=${1//[_,]/} ;;
esac
[[ $ROWS =~ ^[1-9][0-9]*$ && $SCALE =~ ^[0-9.]*$ ]] || {
  usage >&2
  exit 2
}

# show SQL: a statement and its result, as in a psql session.
show() {
  printf '%s%s%s\n' "$BOLD" "$1" "$PLAIN"
  sql -P border=1 -P null='∅' -c '\timing on' -c "$1" | sed -e 's/^Time: /time: /' -e '/^$/d' \
    -e 's/^\(time: .*\)$/'"$DIM"'\1'"$PLAIN"'/'
}

# ms SQL: milliseconds of one statement, without waiting for the disk.
ms() { sql -c 'SET shuffle_ext.sync = off' -c '\timing on' -c "$1" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | tail -n 1; }
median() { sort -n | sed -n '2p'; } # of three

prepare
build_and_install
mb=$(quarter_of_memory)
server_start shared_buffers=$((mb < 4096 ? mb : 4096))MB max_wal_size=8GB
say "filling lineitem"
if [ -n "$SCALE" ]; then load_tpch "$SCALE"; else load_lineitem "$ROWS"; fi
sql -c 'CREATE EXTENSION shuffle_ext' \
  -c 'CREATE TABLE lineitem_hash (LIKE lineitem) PARTITION BY HASH (l_orderkey)'

title "$(value "SELECT format('%s rows of lineitem, %s; PostgreSQL %s, %s cores',
  to_char(count(*), 'FM999,999,999,999'), pg_size_pretty(pg_relation_size('lineitem')),
  split_part(current_setting('server_version'), ' ', 1), $(nproc)) FROM lineitem")"

WRITE="SELECT * FROM shuffle_write('SELECT * FROM lineitem', 'lineitem_s',
                            partitions => 200, keys => '{l_orderkey}')"

title "1. One pass: 200 partitions of compressed Arrow blocks, in parallel"
show "$WRITE LIMIT 5;"
show "SELECT count(*) AS partitions, sum(rows) AS rows, pg_size_pretty(sum(bytes)) AS stored,
       pg_size_pretty(pg_relation_size('lineitem')) AS heap
FROM shuffle_partitions WHERE relation = 'lineitem_s'::regclass;"

title "2. Skew at a glance"
show "SELECT * FROM shuffle_partitions WHERE relation = 'lineitem_s'::regclass
ORDER BY bytes DESC LIMIT 5;"

title "3. The offset index: where partition 7 lies"
show "SELECT * FROM shuffle_index WHERE relation = 'lineitem_s'::regclass AND partition = 7;"

title "4. A table like any other"
show "SELECT 'lineitem_s' AS source, count(*), sum(l_quantity), min(l_shipdate), max(l_comment)
FROM lineitem_s
UNION ALL
SELECT 'lineitem', count(*), sum(l_quantity), min(l_shipdate), max(l_comment) FROM lineitem;"

title "5. One partition, as rows"
show "SELECT l_orderkey, l_linenumber, l_quantity, l_shipdate, l_comment
FROM shuffle_read(NULL::lineitem_s, 7) ORDER BY 1, 2 LIMIT 5;"
show "SELECT count(*) AS rows,
       count(*) FILTER (WHERE NOT satisfies_hash_partition('lineitem_hash'::regclass, 200, 7,
                                                           l_orderkey)) AS misplaced
FROM shuffle_read(NULL::lineitem_s, 7);"
show "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF)
SELECT * FROM lineitem_s WHERE l_orderkey = 549;"

title "6. One partition, as an Arrow stream over the wire"
FETCH="COPY (SELECT shuffle_fetch('lineitem_s', 7)) TO STDOUT (FORMAT binary)"
say "$BOLD$FETCH;$PLAIN"
PYTHON=/usr/bin/python3
need_packages python3
make_venv -r "$BUILD/test/interop/requirements.txt" && PYTHON=$WORK/venv/bin/python
sql -c "$FETCH" | as_server "$PYTHON" "$BUILD/test/interop/show_stream.py"
show "SELECT count(*), sum(l_quantity), min(l_shipdate), max(l_shipdate)
FROM shuffle_read(NULL::lineitem_s, 7);"

title "7. The time beside COPY (median of 3, warm cache, no fsync on either side)"
own_by_server "$WORK/log"
for _ in 1 2 3; do
  ms "COPY lineitem TO '$WORK/lineitem.bin' (FORMAT binary)" >>"$WORK/log/copy"
  sql -c 'DROP TABLE lineitem_s'
  ms "$WRITE" >>"$WORK/log/write"
done
sql -P border=1 -P footer=off -c "
  SELECT what, round(ms) AS \"time, ms\", to_char(ms / $(median <"$WORK/log/copy"), '990.00')
         AS \"against COPY\", pg_size_pretty(size) AS size
  FROM (VALUES ('COPY lineitem TO file (FORMAT binary)', $(median <"$WORK/log/copy")::numeric,
                (pg_stat_file('$WORK/lineitem.bin')).size),
               ('shuffle_write, 200 partitions, lz4', $(median <"$WORK/log/write")::numeric,
                shuffle_size('lineitem_s'))) v(what, ms, size)"
