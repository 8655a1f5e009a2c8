--
-- Metrics of INSERT, COPY, CREATE TABLE AS, REFRESH, rewrites and compaction, against what
-- is known without them
--
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA stats_writes;
SET search_path = stats_writes, public;
SET shuffle_ext.codec = 'none';
SET extra_float_digits = 0;

-- All writes of a table, in order.  Each value is 8 bytes in Arrow, no column has NULLs: that
-- gives the raw bytes; sizes of files and of images give the stored ones, block headers in
-- the index the blocks.
CREATE FUNCTION writes(table_name text, columns int) RETURNS TABLE(processes bigint, segments bigint, rows bigint,
	raw boolean, stored boolean, blocks boolean, runs text, memory boolean, phases boolean) LANGUAGE sql AS $$
	SELECT s.processes, s.segments, s.rows, s.raw_bytes = 8 * columns * s.rows,
		s.stored_bytes = (SELECT sum(CASE WHEN t.path IS NULL THEN octet_length(c.image) ELSE (pg_stat_file(t.path)).size END)
			FROM shuffle_segments t JOIN shuffle_segment c ON c.id = t.id
			WHERE t.relation = s.relation AND c.name LIKE s.write || '-%'),
		s.blocks = (SELECT sum(i.blocks) FROM shuffle_index i JOIN shuffle_segments t USING (relation, segment)
			JOIN shuffle_segment c ON c.id = t.id WHERE i.relation = s.relation AND c.name LIKE s.write || '-%'),
		CASE WHEN s.runs > 1 THEN 'many' ELSE s.runs::text END,
		s.memory_peak BETWEEN 20000 AND s.processes * pg_size_bytes(current_setting('shuffle_ext.memory_limit')),
		s.elapsed_ms > 0 AND s.input_ms >= 0 AND s.repartition_ms > 0 AND s.interleave_ms > 0 AND s.encode_ms > 0
	FROM shuffle_stats s WHERE s.relation = table_name::regclass ORDER BY s.written, s.write
$$;
-- Is what the session was told about its last write what is stored of the table's last one?
CREATE FUNCTION told(table_name text) RETURNS boolean LANGUAGE sql AS $$
	SELECT to_jsonb(w) - 'process' = to_jsonb(s) - '{relation,write,written,processes}'::text[]
	FROM shuffle_write_stats() w, shuffle_stats s
	WHERE w.process IS NULL AND s.relation = table_name::regclass ORDER BY s.written DESC LIMIT 1
$$;

-- INSERT, small ones in the catalog and large ones in files
CREATE TABLE t (a bigint, b bigint) USING shuffle;
SELECT shuffle_set('t', 10, '{a}') IS NOT NULL AS set;
INSERT INTO t VALUES (1, 2), (3, 4);
SELECT told('t');
INSERT INTO t SELECT i, i FROM generate_series(1, 100000) i;
SELECT told('t');
SET shuffle_ext.memory_limit = '8MB';
INSERT INTO t SELECT i, i FROM generate_series(1, 300000) i;
SELECT told('t');
SELECT * FROM writes('t', 2);
-- a statement that fails leaves no metrics
INSERT INTO t SELECT i, 1 / (50000 - i) FROM generate_series(1, 100000) i;
SELECT sum(rows), count(*), (SELECT count(*) FROM t) FROM shuffle_stats WHERE relation = 't'::regclass;

-- COPY, and into the partitions of a table
CREATE TABLE c (a bigint, b bigint) USING shuffle;
COPY c FROM PROGRAM 'seq 1 300000 | sed "s/$/	7/"';
SELECT told('c');
SELECT * FROM writes('c', 2);
CREATE TABLE p (a bigint) PARTITION BY RANGE (a);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (1) TO (40001) USING shuffle;
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (40001) TO (1000000) USING shuffle;
COPY p FROM PROGRAM 'seq 1 100000';
SELECT * FROM writes('p1', 1) UNION ALL SELECT * FROM writes('p2', 1);

-- CREATE TABLE AS and REFRESH
CREATE TABLE ctas USING shuffle AS SELECT a, b, a + b AS c FROM t;
SELECT told('ctas');
SELECT * FROM writes('ctas', 3);
CREATE MATERIALIZED VIEW m USING shuffle AS TABLE c WITH NO DATA;
REFRESH MATERIALIZED VIEW m;
SELECT * FROM writes('m', 2);
INSERT INTO c VALUES (1, 1);
REFRESH MATERIALIZED VIEW m;
SELECT * FROM writes('m', 2);

-- compaction and rewrites: the write that the rows have now
CREATE TABLE u (a bigint, b bigint) USING shuffle;
INSERT INTO u SELECT i, i FROM generate_series(1, 20000) i;
INSERT INTO u SELECT i, i FROM generate_series(1, 20000) i;
SELECT segments_before, segments_after, rows FROM shuffle_compact('u');
SELECT told('u');
SELECT * FROM writes('u', 2);
VACUUM FULL c;
SELECT * FROM writes('c', 2);
DROP MATERIALIZED VIEW m;
ALTER TABLE c ALTER COLUMN b TYPE bigint USING b + 1;
SELECT told('c');
SELECT * FROM writes('c', 2);

-- workers: the sum of what each of them says, that of memory, too
CREATE TABLE src AS SELECT i::bigint AS a, i::bigint AS b FROM generate_series(1, 300000) i;
ANALYZE src;
SET parallel_leader_participation = off;
SELECT sum(rows) FROM shuffle_write('TABLE src', 'parallel', 10, '{a}', workers => 2);
SELECT told('parallel');
SELECT (p).rows, (p).raw, (p).stored, (p).blocks, (p).memory, (p).phases FROM writes('parallel', 2) p;
SELECT s.processes = count(*) AS processes, s.memory_peak = sum(p.memory_peak) AS memory,
	min(p.memory_peak) > 20000 AS each, s.rows = sum(p.rows) AS rows, s.runs = sum(p.runs) AS runs
FROM shuffle_stats s JOIN shuffle_process_stats p USING (relation, write)
WHERE relation = 'parallel'::regclass GROUP BY s.processes, s.memory_peak, s.rows, s.runs;

DROP SCHEMA stats_writes CASCADE;
