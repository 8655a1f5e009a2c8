SET client_min_messages = warning;

-- Reading shuffle tables: everything is compared with a heap table of the same rows.

CREATE TABLE scan_heap AS
SELECT i AS id, i % 97 AS k, (i * 1.37)::numeric(12,2) AS n, 'row ' || i AS t,
       date '2000-01-01' + i % 5000 AS d, i % 3 = 0 AS b, md5(i::text)::uuid AS u,
       CASE WHEN i % 4 <> 0 THEN repeat('x', i % 50) END AS x, i * 0.5::float8 AS f
FROM generate_series(1, 20000) i;
ANALYZE scan_heap;

-- Small blocks: each partition has several extents of one and of several blocks.
SET shuffle_ext.block_rows = 128;
SELECT sum(rows) AS rows FROM shuffle_write('SELECT * FROM scan_heap WHERE id <= 12000', 'scan_log',
	partitions => 8, keys => '{k}', codec => 'lz4');
SELECT sum(rows) AS rows FROM shuffle_write('SELECT * FROM scan_heap WHERE id > 12000', 'scan_log',
	if_exists => 'append');
SELECT sum(rows) AS rows FROM shuffle_write('SELECT * FROM scan_heap', 'scan_parts',
	partitions => 8, keys => '{k}', layout => 'partition_files', codec => 'zstd');
SELECT sum(rows) AS rows FROM shuffle_write('SELECT * FROM scan_heap', 'scan_plain',
	method => 'single', codec => 'none');
RESET shuffle_ext.block_rows;

CREATE FUNCTION scan_differences(a regclass, b regclass) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM ((SELECT * FROM %1$s EXCEPT ALL SELECT * FROM %2$s)
		UNION ALL (SELECT * FROM %2$s EXCEPT ALL SELECT * FROM %1$s)) q', a, b) INTO n;
	RETURN n;
END $$;

--
-- Whole table, columns, rows without columns
--
SELECT s, scan_differences('scan_heap', s) FROM unnest('{scan_log,scan_parts,scan_plain}'::regclass[]) s;
SELECT count(*) FROM scan_log;
SELECT count(*), count(x), sum(n), min(t), max(d), count(DISTINCT u) FROM scan_heap;
SELECT count(*), count(x), sum(n), min(t), max(d), count(DISTINCT u) FROM scan_log;
SELECT count(*), count(x), sum(n), min(t), max(d), count(DISTINCT u) FROM scan_parts;
SELECT * FROM scan_log WHERE id = 4711;
SELECT * FROM scan_parts WHERE x IS NULL AND id < 10 ORDER BY id;
SELECT s FROM scan_log s WHERE id = 4;
SELECT count(*) FROM scan_log a JOIN scan_parts b USING (id, k, n, t, d, b, u, f)
WHERE a.x IS NOT DISTINCT FROM b.x;
SELECT md5(string_agg(t, ',' ORDER BY d DESC, id)) = (SELECT md5(string_agg(t, ',' ORDER BY d DESC, id)) FROM scan_heap)
FROM scan_log;
SELECT count(*) FROM (SELECT lag(id) OVER (ORDER BY id) AS before, id FROM scan_parts) q WHERE before = id - 1;

--
-- System columns
--
SELECT count(*), count(DISTINCT ctid), min(tableoid::regclass::text) FROM scan_log;
SELECT xmin FROM scan_log LIMIT 1;
SELECT cmax FROM scan_log LIMIT 1;
-- in scan order, also over two segments and partition files
SELECT count(*) FROM (SELECT ctid AS c, lag(ctid) OVER () AS before FROM scan_log) q WHERE c <= before;
SELECT count(*) FROM (SELECT ctid AS c, lag(ctid) OVER () AS before FROM scan_parts) q WHERE c <= before;

--
-- By ctid
--
EXPLAIN (COSTS OFF) SELECT * FROM scan_log WHERE ctid = '(0,1)';
SELECT count(*) FROM scan_log a WHERE ctid = ANY (ARRAY(SELECT ctid FROM scan_log WHERE id % 101 = 0));
SELECT sum(id) = (SELECT sum(id) FROM scan_heap WHERE id % 101 = 0) AS same
FROM scan_parts a WHERE ctid = ANY (ARRAY(SELECT ctid FROM scan_parts WHERE id % 101 = 0));
SELECT count(*) FROM scan_log WHERE ctid IN ('(0,0)', '(4294967295,1)', '(0,40000)', '(4000000000,1)',
	(SELECT min(ctid) FROM scan_log));
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM scan_log WHERE ctid > '(0,1)';
WITH c AS MATERIALIZED (SELECT ctid AS c, row_number() OVER (ORDER BY ctid) AS n FROM scan_log)
SELECT n, (SELECT count(*) FROM scan_log WHERE ctid > c.c) AS above,
	(SELECT count(*) FROM scan_log WHERE ctid <= c.c) AS not_above,
	(SELECT count(*) FROM scan_log WHERE ctid BETWEEN c.c AND c.c) AS equal
FROM c WHERE n IN (1, 2, 128, 129, 5000, 11999, 12000, 12001, 20000) ORDER BY n;
SELECT count(*) FROM scan_log WHERE ctid > '(4294967294,65535)';
SELECT count(*) FROM scan_log WHERE ctid < (SELECT min(ctid) FROM scan_log);
SELECT count(*) FROM scan_log WHERE ctid >= '(0,0)' AND ctid <= '(4294967295,65535)';
SELECT count(*) FROM scan_log WHERE ctid > (SELECT max(ctid) FROM scan_log) AND ctid < (SELECT min(ctid) FROM scan_log);
RESET enable_seqscan;

--
-- Cursors: forward and backward give the same rows
--
CREATE FUNCTION scan_cursor(query text) RETURNS TABLE (forward int, same boolean, again boolean) LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'scan_cursor';
	r record;
	f int[];
	b int[];
	a int[];
BEGIN
	OPEN c SCROLL FOR EXECUTE query;
	LOOP FETCH NEXT FROM c INTO r; EXIT WHEN NOT FOUND; f := f || r.id; END LOOP;
	LOOP FETCH PRIOR FROM c INTO r; EXIT WHEN NOT FOUND; b := r.id || b; END LOOP;
	LOOP FETCH NEXT FROM c INTO r; EXIT WHEN NOT FOUND; a := a || r.id; END LOOP;
	CLOSE c;
	RETURN QUERY SELECT cardinality(f), f = b, f = a;
END $$;
SELECT * FROM scan_cursor('SELECT id FROM scan_log WHERE id % 7 = 0');
SELECT * FROM scan_cursor('SELECT id FROM scan_parts WHERE id % 7 = 0');
SELECT * FROM scan_cursor('SELECT id FROM scan_log WHERE id % 70 = 0 UNION ALL SELECT id FROM scan_parts WHERE id % 50 = 0');
SELECT * FROM scan_cursor('SELECT id FROM scan_log WHERE ctid > (SELECT (array_agg(ctid ORDER BY ctid))[9999] FROM scan_log) AND id % 7 = 0');

BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM scan_plain;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH LAST FROM c;
FETCH PRIOR FROM c;
FETCH ABSOLUTE 128 FROM c;
FETCH 2 FROM c;
FETCH BACKWARD 3 FROM c;
MOVE FORWARD ALL IN c;
FETCH RELATIVE -20000 FROM c;
FETCH FIRST FROM c;
FETCH PRIOR FROM c;
FETCH NEXT FROM c;
COMMIT;

-- held over the transaction
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT id FROM scan_plain WHERE id > 19998;
COMMIT;
FETCH ALL FROM c;
CLOSE c;

--
-- A cursor goes on after another subtransaction has been rolled back, also when that
-- one began to read it or ended with an error
--
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM scan_plain;
FETCH 2 FROM c;
SAVEPOINT a;
DECLARE inner_c CURSOR FOR SELECT id FROM scan_plain;
FETCH 2 FROM inner_c;
SELECT id / (id - 5000) FROM scan_plain;
ROLLBACK TO a;
FETCH 2 FROM c;
SAVEPOINT b;
FETCH 200 FROM c \g /dev/null
ROLLBACK TO b;
FETCH 2 FROM c;
COMMIT;

-- errors in loops leave nothing open
DO $$
DECLARE
	errors int := 0;
BEGIN
	FOR i IN 1 .. 500 LOOP
		BEGIN
			PERFORM id / (id - 5000) FROM scan_plain;
		EXCEPTION WHEN division_by_zero THEN
			errors := errors + 1;
		END;
	END LOOP;
	RAISE WARNING '% errors', errors;
END $$;
SELECT count(*) FROM pg_backend_memory_contexts WHERE name LIKE 'shuffle window%';

--
-- Rescans
--
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SET enable_memoize = off;
SELECT count(*), sum(s.id) FROM generate_series(1, 30) i JOIN scan_log s ON s.id = i * 100;
SELECT count(*), sum(s.id) FROM generate_series(1, 30) i JOIN scan_heap s ON s.id = i * 100;
SELECT i, (SELECT max(id) FROM scan_parts WHERE k = i) AS most,
	(SELECT max(id) FROM scan_heap WHERE k = i) AS heap FROM generate_series(0, 3) i;
SELECT i, (SELECT t FROM scan_log WHERE k = i LIMIT 1) IS NOT NULL FROM generate_series(95, 97) i;
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_material;
RESET enable_memoize;

--
-- In parallel
--
BEGIN;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL max_parallel_workers_per_gather = 4;
SET LOCAL parallel_leader_participation = on;
EXPLAIN (COSTS OFF) SELECT count(*), sum(id) FROM scan_log;
SELECT count(*), sum(id), count(DISTINCT u) FROM scan_log;
SELECT count(*), sum(id), count(DISTINCT u) FROM scan_parts;
SELECT count(*) FROM scan_log a JOIN scan_parts b USING (id) WHERE a.t = b.t;
SET LOCAL parallel_leader_participation = off;
SELECT count(*), sum(id) FROM scan_log;
-- rescanned: the inner side of a join over a Gather
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off;
SET LOCAL enable_material = off;
SELECT i, (SELECT sum(id) FROM scan_log WHERE k = i) FROM generate_series(1, 3) i;
SELECT k, sum(id) FROM scan_heap WHERE k BETWEEN 1 AND 3 GROUP BY k ORDER BY k;
-- an uncommitted segment is seen by the workers of its own transaction
SELECT sum(rows) AS rows FROM shuffle_write('SELECT * FROM scan_heap WHERE id <= 100', 'scan_log', if_exists => 'append');
SELECT count(*), sum(id) FROM scan_log;
ROLLBACK;
SELECT count(*), sum(id) FROM scan_log;

--
-- Columns added and dropped since
--
BEGIN;
ALTER TABLE scan_plain ADD COLUMN added int DEFAULT 42, ADD COLUMN empty text, DROP COLUMN t;
SELECT count(*), sum(added), count(empty), max(f) FROM scan_plain;
SELECT * FROM scan_plain WHERE id = 3;
SELECT * FROM shuffle_read(NULL::scan_plain, 0) WHERE id = 3;
ROLLBACK;

--
-- Copied on
--
CREATE TABLE scan_copy AS TABLE scan_log;
SELECT scan_differences('scan_heap', 'scan_copy');
INSERT INTO scan_copy SELECT * FROM scan_parts WHERE id <= 10;
SELECT count(*) FROM scan_copy;
COPY (SELECT id, x FROM scan_parts WHERE id IN (4, 5) ORDER BY id) TO STDOUT;
-- rows of another table are updated and deleted by a join with ours
UPDATE scan_copy c SET t = 'seen' FROM scan_log s WHERE c.id = s.id AND s.k = 5 AND c.id <= 1000;
SELECT count(*) FROM scan_copy WHERE t = 'seen';
DELETE FROM scan_copy c USING scan_parts s WHERE c.id = s.id AND s.k = 5 AND c.id <= 1000;
SELECT count(*) FROM scan_copy WHERE t = 'seen';
DROP TABLE scan_copy;

--
-- Statistics
--
ANALYZE scan_log;
ANALYZE scan_parts;
SELECT relname, reltuples, relpages > 0 AS pages FROM pg_class WHERE relname IN ('scan_log', 'scan_parts') ORDER BY 1;
SELECT h.attname, s.null_frac = h.null_frac AS null_frac, abs(s.n_distinct - h.n_distinct) < 0.01 AS n_distinct,
	s.most_common_vals::text IS NOT DISTINCT FROM h.most_common_vals::text AS mcv,
	s.histogram_bounds::text IS NOT DISTINCT FROM h.histogram_bounds::text AS histogram
FROM pg_stats h JOIN pg_stats s USING (attname)
WHERE h.tablename = 'scan_heap' AND s.tablename = 'scan_log' AND h.attname IN ('id', 'k', 'x', 'd', 'b') ORDER BY 1;
-- physical order is what a sequential scan gives
SELECT count(*) FROM shuffle_write('SELECT i AS rising, hashint4(i) AS mixed, -i AS falling
	FROM generate_series(1, 20000) i', 'scan_ordered', partitions => 1, workers => 0);
ANALYZE scan_ordered;
SELECT attname, round(correlation::numeric, 1) AS correlation FROM pg_stats
WHERE tablename = 'scan_ordered' ORDER BY 1;
DROP TABLE scan_ordered;
VACUUM scan_log;
VACUUM (ANALYZE) scan_parts;
SELECT relname, reltuples, age(relfrozenxid) < 1000 AS young, mxid_age(relminmxid) < 1000 AS young_multi
FROM pg_class WHERE relname IN ('scan_log', 'scan_parts') ORDER BY 1;
SELECT shuffle_size('scan_log') > 100000 AS size, pg_relation_size('scan_log') AS fork;
SELECT shuffle_size('scan_heap');

--
-- Parallel scans share blocks: of one segment, too
--
SET shuffle_ext.block_rows = 10;
SET client_min_messages = warning;
SELECT segments, blocks FROM shuffle_write('SELECT i FROM generate_series(1, 400) i', 'scan_shared',
	partitions => 1, workers => 0);
RESET client_min_messages;
RESET shuffle_ext.block_rows;
ALTER TABLE scan_shared SET (parallel_workers = 2);
CREATE FUNCTION scan_slowly(int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS
	$$ BEGIN PERFORM pg_sleep(0.002); RETURN pg_backend_pid(); END $$;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET parallel_leader_participation = off;
SELECT count(*) AS processes, sum(n) AS rows, min(n) >= 50 AS shared
FROM (SELECT scan_slowly(i) AS pid, count(*) AS n FROM scan_shared GROUP BY 1) q;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET parallel_leader_participation;
DROP TABLE scan_shared;
DROP FUNCTION scan_slowly;

--
-- Partitions
--
SELECT count(*), sum(id) FROM shuffle_read(NULL::scan_log, 0, 1, 2, 3, 4, 5, 6, 7);
SELECT count(*) FROM shuffle_read(NULL::scan_log, VARIADIC '{}');
SELECT count(*) FROM shuffle_read(NULL::scan_log, 3, 3, 3) a;
CREATE TABLE scan_by_hash (k int) PARTITION BY HASH (k);
SELECT p, count(*), bool_and(satisfies_hash_partition('scan_by_hash'::regclass, 8, p, (r).k)) AS right_ones
FROM (SELECT p, shuffle_read(NULL::scan_parts, p) AS r FROM generate_series(0, 7) p) q GROUP BY p ORDER BY p;
SELECT a.rows = b.n AS same FROM shuffle_partitions a
JOIN (SELECT p, count(*) AS n FROM (SELECT p, shuffle_read(NULL::scan_log, p) FROM generate_series(0, 7) p) q GROUP BY p) b
ON a.partition = b.p WHERE a.relation = 'scan_log'::regclass ORDER BY p;
-- the planner counts partitions as equally large
CREATE FUNCTION scan_estimate(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
	RETURN plan->0->'Plan'->>'Plan Rows';
END $$;
SELECT scan_estimate('SELECT * FROM shuffle_read(NULL::scan_log, 1, 2)'),
	scan_estimate('SELECT * FROM shuffle_read(NULL::scan_log, VARIADIC ARRAY(SELECT 1))') AS unknown_array,
	scan_estimate('SELECT * FROM shuffle_read(NULL::scan_heap, 1)') AS no_shuffle_table,
	scan_estimate('SELECT * FROM scan_log') AS scan;
-- stops early in a select list
SELECT shuffle_read(NULL::scan_plain, 0) LIMIT 2;
SELECT count(*) FROM shuffle_read(NULL::scan_log, 8);
SELECT count(*) FROM shuffle_read(NULL::scan_log, -1);
SELECT count(*) FROM shuffle_read(NULL::scan_log, NULL);
SELECT count(*) FROM shuffle_read(NULL::scan_log, VARIADIC NULL);
SELECT count(*) FROM shuffle_read(NULL::scan_heap, 1);
SELECT count(*) FROM shuffle_read(NULL::int, 1);
SELECT count(*) FROM shuffle_read(NULL, 1);

-- the Arrow stream begins with a schema message and ends with the end of stream
SELECT substr(string_agg(c, '' ORDER BY n), 1, 4) AS first, right(encode(string_agg(c, '' ORDER BY n), 'hex'), 16) AS last,
	length(string_agg(c, '' ORDER BY n)) > 10000 AS long
FROM shuffle_fetch('scan_log', 1, 2) WITH ORDINALITY f(c, n);
SELECT right(encode(c, 'hex'), 16) AS last, length(c) < 10000 AS short FROM shuffle_fetch('scan_log', VARIADIC '{}') c;
SELECT count(*) FROM shuffle_fetch('scan_log', 99);
SELECT count(*) FROM shuffle_fetch('scan_heap', 1);

--
-- All files are sound
--
SELECT partition, sum(rows) AS rows, bool_and(error IS NULL) AS sound FROM shuffle_verify('scan_log') GROUP BY 1 ORDER BY 1;
SELECT count(*), sum(rows) AS rows, count(DISTINCT partition), bool_and(error IS NULL) AS sound FROM shuffle_verify('scan_parts');
SELECT * FROM shuffle_verify('scan_heap');

--
-- Privileges
--
CREATE ROLE scan_user;
GRANT SELECT (id, k) ON scan_log TO scan_user;
SET ROLE scan_user;
SELECT count(id) FROM scan_log;
SELECT count(*) FROM shuffle_read(NULL::scan_log, 1);
SELECT count(*) FROM shuffle_fetch('scan_log', 1);
SELECT count(*) FROM shuffle_verify('scan_log');
RESET ROLE;
GRANT SELECT ON scan_log TO scan_user;
SET ROLE scan_user;
SELECT count(*) FROM shuffle_read(NULL::scan_log, 0, 1, 2, 3, 4, 5, 6, 7);
SELECT count(*) > 0 FROM shuffle_fetch('scan_log', 1);
RESET ROLE;
ALTER TABLE scan_log ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON scan_log TO scan_user USING (id <= 10);
SET ROLE scan_user;
SELECT count(*) FROM scan_log;
SELECT count(*) FROM shuffle_read(NULL::scan_log, 1);
SELECT count(*) FROM shuffle_fetch('scan_log', 1);
SELECT count(*) FROM shuffle_verify('scan_log');
SET row_security = off;
SELECT count(*) FROM shuffle_read(NULL::scan_log, 1);
RESET row_security;
RESET ROLE;
SELECT count(*) > 0 FROM shuffle_read(NULL::scan_log, 1);
ALTER TABLE scan_log DISABLE ROW LEVEL SECURITY;
DROP POLICY p ON scan_log;
REVOKE ALL ON scan_log FROM scan_user;
DROP ROLE scan_user;

--
-- What is refused, and what to do instead
--
UPDATE scan_log SET k = 1 WHERE id = 1;
DELETE FROM scan_log WHERE id = 1;
SELECT id FROM scan_log WHERE id = 1 FOR UPDATE;
SELECT id FROM scan_log WHERE id = 1 FOR KEY SHARE;
INSERT INTO scan_log (id) VALUES (1) ON CONFLICT (id) DO NOTHING;
CREATE INDEX ON scan_log (id);
CREATE TABLE scan_index (id int) USING shuffle;
CREATE INDEX CONCURRENTLY scan_leftover ON scan_index (id);
INSERT INTO scan_index VALUES (1), (2);
COPY scan_index FROM STDIN;
3
\.
SELECT * FROM scan_index;
DROP TABLE scan_index;
CREATE TABLE scan_refused (a int PRIMARY KEY) USING shuffle;
CREATE TEMP TABLE scan_refused (a int) USING shuffle;
CREATE UNLOGGED TABLE scan_refused (a int) USING shuffle;
SELECT count(*) FROM scan_log TABLESAMPLE system (10);
SELECT count(*) FROM scan_log TABLESAMPLE bernoulli (10);
CLUSTER scan_log;
ALTER TABLE scan_log SET UNLOGGED;
MERGE INTO scan_log s USING scan_heap h ON s.id = h.id WHEN MATCHED THEN DELETE;

--
-- DDL
--
CREATE TABLE scan_ddl (a int, b text) USING shuffle;
SELECT * FROM scan_ddl;
SELECT count(*) FROM scan_ddl;
ANALYZE scan_ddl;
VACUUM scan_ddl;
SELECT * FROM shuffle_verify('scan_ddl');
SELECT shuffle_size('scan_ddl');
SELECT sum(rows) AS rows FROM shuffle_write('SELECT i AS a, i::text AS b FROM generate_series(1, 10) i', 'scan_ddl', if_exists => 'append');
SELECT * FROM scan_ddl ORDER BY a LIMIT 2;
BEGIN;
TRUNCATE scan_ddl;
SELECT count(*) FROM scan_ddl;
ROLLBACK;
SELECT count(*) FROM scan_ddl;
-- truncated in the transaction that made its storage
BEGIN;
TRUNCATE scan_ddl;
SELECT sum(rows) AS rows FROM shuffle_write('SELECT 1 AS a, ''x'' AS b', 'scan_ddl', if_exists => 'append');
TRUNCATE scan_ddl;
SELECT count(*) FROM scan_ddl;
SELECT sum(rows) AS rows FROM shuffle_write('SELECT 2 AS a, ''y'' AS b', 'scan_ddl', if_exists => 'append');
SELECT * FROM scan_ddl;
COMMIT;
SELECT * FROM scan_ddl;
SELECT count(*), bool_and(error IS NULL) FROM shuffle_verify('scan_ddl');
DROP TABLE scan_ddl;
CREATE TABLE scan_empty () USING shuffle;
SELECT sum(rows) AS rows FROM shuffle_write('SELECT FROM generate_series(1, 1000)', 'scan_empty', if_exists => 'append');
SELECT count(*) FROM scan_empty;
SELECT count(*) FROM (SELECT * FROM scan_empty) q;
SELECT count(*) FROM shuffle_read(NULL::scan_empty, 0);

DROP TABLE scan_empty, scan_log, scan_parts, scan_plain, scan_heap, scan_by_hash;
DROP FUNCTION scan_differences, scan_cursor, scan_estimate;
