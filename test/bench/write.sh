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

# write PARTITIONS [QUERY]
write() {
  echo "SELECT count(*) FROM shuffle_write('${2:-SELECT * FROM lineitem}', 'target',
    partitions => $1, keys => '{1}', codec => 'lz4')"
}
OFF='SET shuffle_ext.sync = off'

drop_target() { sql -c 'DROP TABLE target'; }

value 'SELECT count(*) FROM lineitem' >/dev/null # warm
for ((round = 0; round <= ROUNDS; round++)); do
  [ $round != 1 ] || rm -f "$WORK"/times/* # round 0 warms up
  sample copy "COPY lineitem TO '$WORK/files/copy.bin' (FORMAT binary)"
  rm -f "$WORK/files/copy.bin"
  sample scan "SELECT count($LAST) FROM lineitem"
  sample write_off "$OFF" "$(write 200)"
  bytes_200=$(value "SELECT shuffle_size('target')")
  drop_target
  sample write_on "$(write 200)"
  drop_target
  sample write_8000 "$OFF" "$(write 8000)"
  bytes_8000=$(value "SELECT shuffle_size('target')")
  drop_target
done

heading "$ROUNDS rounds"
row copy "COPY lineitem TO file (FORMAT binary)"
row scan "SELECT count($LAST) FROM lineitem, parallel"
row write_off "shuffle_write, 200 partitions, lz4, sync off"
row write_on "shuffle_write, 200 partitions, lz4, sync on"
row write_8000 "shuffle_write, 8000 partitions, lz4, sync off"
printf '%-58s %10s\n' "bytes, 200 partitions" "$bytes_200" "bytes, 8000 partitions" "$bytes_8000"
say
target "shuffle_write / COPY, sync off" "$(ratio "$(median write_off)" "$(median copy)")" 0.35 x
target "shuffle_write / COPY, sync on" "$(ratio "$(median write_on)" "$(median copy)")" 0.35 x
target "shuffle_write / parallel scan of the last column" \
  "$(ratio "$(median write_off)" "$(median scan)")" 2.0 x
target "8000 / 200 partitions, time" "$(ratio "$(median write_8000)" "$(median write_off)")" 1.15 x
target "8000 / 200 partitions, bytes" "$(ratio "$bytes_8000" "$bytes_200")" 1.35 x

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
  "$(write 200 'SELECT l.* FROM lineitem l, generate_series(1, 10)')"
drop_target
peak "100000 partitions" "$(write 100000)"
drop_target
sql -c "DO \$\$ BEGIN EXECUTE 'CREATE TABLE wide AS SELECT ' ||
  (SELECT string_agg(format('(i + %s) %% 1000 AS c%s', n, n), ',') FROM generate_series(1, 1600) n) ||
  ' FROM generate_series(1, 100000) i'; END \$\$"
peak "1600 columns" "$(write 200 'TABLE wide')"
drop_target
exit $((MISSED > 0))
