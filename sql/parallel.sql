--
-- shuffle_write with parallel plans: the same rows whoever writes them
--
\set SHOW_CONTEXT never
CREATE SCHEMA parallel_test;
SET search_path = parallel_test, public;
SET client_min_messages = warning;

CREATE FUNCTION differences(a text, b text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM ((%1$s EXCEPT ALL %2$s) UNION ALL (%2$s EXCEPT ALL %1$s)) d',
				   '(' || a || ')', '(' || b || ')') INTO n;
	RETURN n;
END $$;
-- says which process a row was made in
CREATE FUNCTION process() RETURNS int LANGUAGE plpgsql VOLATILE PARALLEL SAFE
	AS 'BEGIN RETURN pg_backend_pid(); END';

CREATE TABLE big (id int, k int, t text);
INSERT INTO big SELECT i, i % 1000, repeat(md5(i::text), 1 + i % 3) FROM generate_series(1, 100000) i;
ANALYZE big;

-- workers only: none of the rows is made by the leader
SET parallel_leader_participation = off;
SELECT sum(rows), count(*) FROM shuffle_write('SELECT *, process() AS pid FROM big', 'by_workers', 8, '{k}', workers => 2);
SELECT bool_or(pid = pg_backend_pid()) AS leader, count(DISTINCT pid) BETWEEN 1 AND 2 AS workers FROM by_workers;
SELECT differences('TABLE big', 'SELECT id, k, t FROM by_workers');
RESET parallel_leader_participation;
-- none asked for: all in the leader
SELECT sum(rows), max(segments) FROM shuffle_write('SELECT *, process() AS pid FROM big', 'by_leader', 8, '{k}', workers => 0);
SELECT bool_and(pid = pg_backend_pid()) AS leader FROM by_leader;
-- asked for, none available
SET max_parallel_workers = 0;
SELECT sum(rows), max(segments) FROM shuffle_write('TABLE big', 'none_there', 8, '{k}', workers => 2);
SELECT differences('TABLE big', 'TABLE none_there');
RESET max_parallel_workers;
-- the settings for planning do not stay
SHOW min_parallel_table_scan_size;
SHOW parallel_setup_cost;
SHOW max_parallel_workers_per_gather;
SHOW enable_partitionwise_aggregate;

-- partitions hold what hash partitioning puts there, whoever wrote it
CREATE TABLE model (k int) PARTITION BY HASH (k);
SELECT count(*) FILTER (WHERE NOT satisfies_hash_partition('model'::regclass, 8, p, k)) AS wrong, count(*)
	FROM generate_series(0, 7) p, shuffle_read(NULL::by_workers, p);

-- partitioned tables (Parallel Append), with and without partitionwise aggregation
CREATE TABLE parts (id int, k int, t text) PARTITION BY RANGE (id);
CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (0) TO (30000);
CREATE TABLE parts2 PARTITION OF parts FOR VALUES FROM (30000) TO (60000);
CREATE TABLE parts3 PARTITION OF parts FOR VALUES FROM (60000) TO (1000000);
INSERT INTO parts TABLE big;
ANALYZE parts;
SELECT sum(rows) FROM shuffle_write('TABLE parts', 'from_parts', 4, '{k}', workers => 2);
SELECT differences('TABLE big', 'TABLE from_parts');
SET enable_partitionwise_aggregate = on;
SELECT sum(rows), max(segments) <= 3 AS few FROM shuffle_write('TABLE parts', 'from_parts2', 4, '{k}', workers => 2);
SELECT differences('TABLE big', 'TABLE from_parts2');
RESET enable_partitionwise_aggregate;
SELECT sum(rows) FROM shuffle_write('SELECT * FROM big UNION ALL SELECT * FROM parts', 'from_union', 4, '{k}', workers => 2);
SELECT differences('SELECT * FROM big UNION ALL SELECT * FROM parts', 'TABLE from_union');

-- joins, aggregates, ORDER BY, LIMIT
SELECT sum(rows) FROM shuffle_write('SELECT a.id, b.t FROM big a JOIN parts b USING (id)', 'joined', 4, '{id}', workers => 2);
SELECT differences('SELECT id, t FROM big', 'TABLE joined');
SELECT sum(rows) FROM shuffle_write('SELECT k, count(*) AS n FROM big GROUP BY k', 'grouped', 4, '{k}', workers => 2);
SELECT count(*), sum(n) FROM grouped;
SELECT sum(rows) FROM shuffle_write('SELECT id, t FROM big ORDER BY t, id', 'ordered', 3, '{id}', workers => 2);
SELECT p, array_agg(id) = array_agg(id ORDER BY t, id) AS ordered
	FROM generate_series(0, 2) p, shuffle_read(NULL::ordered, p) GROUP BY p ORDER BY p;
SELECT sum(rows) FROM shuffle_write('SELECT id FROM big LIMIT 1000', 'limited', 3, workers => 2);

-- functions that are not parallel safe make it serial
CREATE SEQUENCE numbers;
SELECT sum(rows), max(segments) FROM shuffle_write('SELECT nextval(''numbers'') AS n, process() AS pid FROM big', 'numbered', 3, workers => 2);
SELECT count(DISTINCT n), min(n), max(n), bool_and(pid = pg_backend_pid()) AS leader FROM numbered;

-- forced parallel mode: the whole aggregate in one worker
SELECT set_config(name, 'regress', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
SELECT sum(rows) FROM shuffle_write('SELECT id, t, process() AS pid FROM big WHERE id <= 100', 'forced', 3, '{id}');
SELECT bool_or(pid = pg_backend_pid()) AS leader FROM forced;
SELECT differences('SELECT id, t FROM big WHERE id <= 100', 'SELECT id, t FROM forced');
SELECT sum(rows) FROM shuffle_write('TABLE big', 'forced2', 3, '{id}', workers => 2);
SELECT differences('TABLE big', 'TABLE forced2');
SELECT sum(rows) FROM shuffle_write('SELECT id, process() AS pid FROM big WHERE id <= 100', 'unforced', 3, '{id}', workers => 0);
SELECT bool_and(pid = pg_backend_pid()) AS leader FROM unforced;
SELECT sum(rows) FROM shuffle_write('SELECT id FROM big WHERE false', 'forced3', 3, '{id}');
SELECT set_config(name, 'off', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');

-- JIT
SET jit = on;
SET jit_above_cost = 0;
SET jit_inline_above_cost = 0;
SET jit_optimize_above_cost = 0;
SELECT sum(rows) FROM shuffle_write('TABLE big', 'jitted', 4, '{k}', workers => 2);
SELECT differences('TABLE big', 'TABLE jitted');
RESET jit;
RESET jit_above_cost;
RESET jit_inline_above_cost;
RESET jit_optimize_above_cost;

-- many columns, and none
SELECT format('SELECT %s FROM big', string_agg(format('id + %s AS c%1$s', i), ', ')) AS q120
	FROM generate_series(1, 120) i \gset
SELECT sum(rows) FROM shuffle_write(:'q120', 'wide', 4, '{c7}', workers => 2);
SELECT count(*), sum(c1::bigint), sum(c120::bigint) FROM wide;
SELECT sum(rows) FROM shuffle_write('SELECT FROM big', 'no_columns', 4, workers => 2);
SELECT count(*) FROM no_columns;

-- rows, catalogs and types of the caller's own transaction
BEGIN;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE mine AS SELECT i AS id, (ARRAY['sad','ok'])[1 + i % 2]::mood AS m FROM generate_series(1, 50000) i;
ANALYZE mine;
SELECT sum(rows) FROM shuffle_write('TABLE mine', 'mine_s', 3, '{m}', workers => 2);
SELECT differences('TABLE mine', 'TABLE mine_s');
SELECT sum(rows) FROM shuffle_write('SELECT * FROM mine_s UNION ALL SELECT * FROM mine_s', 'mine_s', if_exists => 'replace', workers => 2);
SELECT count(*) FROM mine_s;
COMMIT;

-- an error in a worker leaves nothing
SELECT * FROM shuffle_write('SELECT id, 1 / (id - 99999) AS x FROM big', 'failed', 4, '{id}', workers => 2);
SELECT to_regclass('failed');
BEGIN;
SELECT sum(rows) FROM shuffle_write('SELECT id FROM big', 'kept', 4, '{id}', workers => 2);
SAVEPOINT s;
SELECT * FROM shuffle_write('SELECT id / (id - 99999) AS x FROM big', 'kept', if_exists => 'append', workers => 2);
ROLLBACK TO s;
COMMIT;
SELECT count(*), (SELECT sum(rows) FROM shuffle_segments WHERE relation = 'kept'::regclass) FROM kept;

-- temporary tables can be read, by the leader alone
CREATE TEMP TABLE temporary AS TABLE big;
SELECT sum(rows), max(segments) FROM shuffle_write('TABLE temporary', 'from_temporary', 3, workers => 2);

\set VERBOSITY terse
DROP SCHEMA parallel_test CASCADE;
