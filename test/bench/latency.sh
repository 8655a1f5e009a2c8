#!/bin/bash
# latency.sh: how soon a write notices that it is cancelled, and what other sessions feel
# while eight of them run.
OPTIONS_HELP='
  --writers N      default 8
  --cancels N      of each kind of statement (default 20)
  --seconds N      of short queries, idle and beside the writers (default 15)'
WRITERS=8 CANCELS=20 SECONDS_=15

bench_option() {
  case $1 in
    --writers) WRITERS=$2 ;;
    --cancels) CANCELS=$2 ;;
    --seconds) SECONDS_=$2 ;;
    *) return 1 ;;
  esac
}

. "$(dirname "$0")/bench.sh"
bench_arguments "Cancel time, and the delay that others see while writers run." "$@"
bench_prepare
mkdir "$WORK/times"
sql -c 'CREATE TABLE account AS SELECT i AS id, 0 AS n FROM generate_series(1, 100000) i' \
  -c 'CREATE UNIQUE INDEX ON account (id)' -c 'VACUUM (FREEZE, ANALYZE) account' \
  -o /dev/null -c "SELECT shuffle_write('SELECT * FROM lineitem WHERE false', 'filled',
    partitions => 200, keys => '{l_orderkey}')"

# cancel NAME SQL...: starts the statement, cancels it at a random moment of its first two
# seconds, and waits until its session is idle: milliseconds of that into NAME's list.
cancel() {
  local name=$1 client arguments=() statement
  shift
  for statement; do arguments+=(-c "$statement"); done
  PGAPPNAME=victim sql -o /dev/null "${arguments[@]}" >/dev/null 2>&1 &
  client=$!
  sql -At 2>&1 >/dev/null <<EOF | sed -n 's/.*NOTICE: *//p' >>"$WORK/times/$name"
DO \$\$
DECLARE
  victim int;
  begun timestamptz;
BEGIN
  FOR i IN 1..5000 LOOP
    PERFORM pg_stat_clear_snapshot();
    SELECT pid INTO victim FROM pg_stat_activity
    WHERE application_name = 'victim' AND backend_type = 'client backend' AND state = 'active'
      AND (query ~ 'lineitem');
    EXIT WHEN victim IS NOT NULL;
    PERFORM pg_sleep(0.001);
  END LOOP;
  PERFORM pg_sleep(0.1 + 1.9 * random());
  begun := clock_timestamp();
  PERFORM pg_cancel_backend(victim);
  LOOP
    PERFORM pg_stat_clear_snapshot();
    EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = victim AND state = 'active');
    PERFORM pg_sleep(0.0005);
  END LOOP;
  RAISE NOTICE '%', extract(epoch FROM clock_timestamp() - begun) * 1000;
END \$\$;
EOF
  wait "$client" || true
}

write="SELECT count(*) FROM shuffle_write('SELECT l.* FROM lineitem l, generate_series(1, 20)',
  'target', partitions => 200, keys => '{l_orderkey}'"
for ((i = 0; i < CANCELS; i++)); do
  cancel serial "$write, codec => 'lz4', workers => 0)"
  cancel parallel "$write, codec => 'lz4')"
  cancel zstd "$write, codec => 'zstd:9', workers => 0)"
  cancel many "${write/200/100000}, codec => 'lz4', workers => 0)"
  cancel insert "INSERT INTO filled SELECT l.* FROM lineitem l, generate_series(1, 20)"
done
[ "$(value "SELECT to_regclass('target') IS NULL")" = t ] || die "a write was not cancelled"

heading "time until a cancelled statement has ended, $CANCELS each"
row serial "shuffle_write, one process, lz4"
row parallel "shuffle_write, parallel, lz4"
row zstd "shuffle_write, one process, zstd:9"
row many "shuffle_write, one process, 100,000 partitions"
row insert "INSERT into a shuffle table"

# others NAME: a short read and a short write, over and over, by one session.
others() {
  printf '%s\n' '\set id random(1, 100000)' 'SELECT n FROM account WHERE id = :id;' \
    'UPDATE account SET n = n + 1 WHERE id = :id;' >"$WORK/others.sql"
  rm -f "$WORK"/others_log*
  (cd "$WORK" && as_server "$PG_BIN/pgbench" -n -f "$WORK/others.sql" -T "$SECONDS_" -R 20 -l \
    --log-prefix="$WORK/others_log" >/dev/null 2>&1)
  # Third field: microseconds from when the transaction should have begun.
  awk '{ print $3 / 1000 }' "$WORK"/others_log* | sort -n >"$WORK/latency_$1"
}
percentile() { awk -v p="$2" '{ v[NR] = $1 } END { print v[int((NR - 1) * p) + 1] }' "$WORK/latency_$1"; }
own_by_server "$WORK"

others idle
for ((i = 0; i < WRITERS; i++)); do
  sql -o /dev/null -c "SET max_parallel_workers_per_gather = 0" \
    -c "SELECT count(*) FROM shuffle_write('SELECT l.* FROM lineitem l, generate_series(1, 1000)',
      'target_$i', partitions => 200, keys => '{l_orderkey}', codec => 'lz4')" >/dev/null 2>&1 &
done
wait_for "count(*) = $WRITERS FROM shuffle_progress WHERE rows > 0" || die "the writers do not run"
others writing
# The same number of processes that only compute: what eight busy processes cost anyway.
sql -o /dev/null -c "SELECT pg_cancel_backend(pid) FROM shuffle_progress"
wait
for ((i = 0; i < WRITERS; i++)); do
  PGAPPNAME=busy sql -o /dev/null -c 'SET max_parallel_workers_per_gather = 0' \
    -c 'SELECT count(l.l_comment) FROM lineitem l, generate_series(1, 1000)' >/dev/null 2>&1 &
done
wait_for "count(*) = $WRITERS FROM pg_stat_activity
  WHERE application_name = 'busy' AND state = 'active'" || die "the scans do not run"
others scanning
sql -o /dev/null -c "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'busy'"
wait

printf '\n%-48s %9s %9s %9s %9s\n' "transactions of another session, ms" median "95 %" "99 %" max
for name in idle scanning writing; do
  case $name in
    idle) label="nothing else runs" ;;
    scanning) label="$WRITERS sessions that only scan" ;;
    writing) label="$WRITERS writers" ;;
  esac
  printf '%-48s %9.1f %9.1f %9.1f %9.1f\n' "$label" "$(percentile $name 0.5)" \
    "$(percentile $name 0.95)" "$(percentile $name 0.99)" "$(percentile $name 1)"
  [ -z "$CSV" ] || printf 'latency_%s,"%s",%s,,%s,%s,,\n' $name "$label" "$(percentile $name 0.5)" \
    "$(percentile $name 1)" "$(wc -l <"$WORK/latency_$name")" >>"$CSV"
done
