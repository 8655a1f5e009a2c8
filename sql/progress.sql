-- progress of running writes and reads: the rows that are written look at it themselves
CREATE FUNCTION progress_now(OUT relation regclass, OUT operation text, OUT phase text,
	OUT rows int8, OUT bytes int8, OUT expected_rows int8, OUT percent numeric, OUT processes int)
	RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
BEGIN
	PERFORM pg_stat_clear_snapshot();
	SELECT p.relation, p.operation, p.phase, p.rows, p.bytes, p.expected_rows, p.percent, p.processes
	INTO relation, operation, phase, rows, bytes, expected_rows, percent, processes
	FROM shuffle_progress p
	WHERE p.pid = pg_backend_pid()
		OR p.pid = (SELECT leader_pid FROM pg_stat_activity WHERE pid = pg_backend_pid());
END $$;

CREATE TABLE progress_src AS SELECT i AS id, repeat('x', 100) AS t FROM generate_series(1, 20000) i;
ANALYZE progress_src;

-- nothing runs
SELECT * FROM progress_now();

-- serial; the plan's rows are known exactly here.  Rows are slow enough to be reported.
SELECT count(*) FROM shuffle_write($$
	SELECT id, CASE WHEN id % 1000 = 0 THEN pg_sleep(0.06) IS NOT NULL END AS slept,
		CASE WHEN id % 1000 = 1 THEN to_json(progress_now())::text END AS seen
	FROM progress_src ORDER BY id$$, 'progress_1', partitions => 4, keys => '{id}', workers => 0);
SELECT seen->>'operation' AS operation, seen->>'relation' AS relation, seen->>'phase' AS phase,
	min((seen->>'expected_rows')::int) AS expected_rows, min((seen->>'processes')::int) AS processes,
	-- reported every 50 ms: at most some thousand rows old
	bool_and((seen->>'rows')::int BETWEEN id - 3000 AND id) AS rows,
	bool_and((seen->>'percent')::numeric = round((seen->>'rows')::int / 200.0, 1)) AS percent
FROM (SELECT id, seen::jsonb FROM progress_1 WHERE seen IS NOT NULL AND id > 1) s GROUP BY 1, 2, 3;

-- gone afterwards; after an error, too
SELECT * FROM progress_now();
SELECT count(*) FROM shuffle_write('SELECT 1 / (id - 10000) AS x FROM progress_src', 'progress_2');
SELECT * FROM progress_now();

-- parallel: all processes together, more than one of them
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT count(*) FROM shuffle_write($$
	SELECT id, CASE WHEN id % 100 = 0 THEN pg_sleep(0.005) IS NOT NULL END AS slept,
		CASE WHEN id % 100 = 1 THEN to_json(progress_now())::text END AS seen
	FROM progress_src$$, 'progress_2', partitions => 4, keys => '{id}', workers => 2);
SELECT max((seen->>'processes')::int) = (SELECT processes FROM shuffle_stats
		WHERE relation = 'progress_2'::regclass) AS processes,
	bool_and((seen->>'expected_rows')::int BETWEEN 18000 AND 22000) AS expected_rows,
	max((seen->>'rows')::int) BETWEEN 5000 AND 20000 AS rows
FROM (SELECT id, seen::jsonb FROM progress_2 WHERE seen IS NOT NULL) s
WHERE seen->>'operation' = 'write';

-- a read, by itself, and under COPY, whose own progress stays
SELECT length(chunk) > 0 AS chunk, to_jsonb(progress_now()) - 'bytes' AS progress
FROM (SELECT shuffle_fetch('progress_1', 0, 1, 2, 3) AS chunk OFFSET 0) f;
SELECT * FROM progress_now();
COPY (
	SELECT length(chunk) > 0,
		(SELECT command FROM pg_stat_progress_copy WHERE pid = pg_backend_pid() AND chunk IS NOT NULL),
		to_jsonb(progress_now())->>'operation'
	FROM (SELECT shuffle_fetch('progress_1', 0, 1, 2, 3) AS chunk OFFSET 0) f
) TO STDOUT;

-- rows that are inserted, and rows that COPY brings
CREATE TABLE progress_4 (id int, seen jsonb DEFAULT to_jsonb(progress_now())) USING shuffle;
INSERT INTO progress_4 SELECT i FROM generate_series(1, 3) i;
COPY progress_4 (id) FROM PROGRAM 'seq 11 3000';
SELECT seen->>'operation' AS operation, seen->>'relation' AS relation, max(id)
FROM progress_4 WHERE id = 3 OR id > 2000 GROUP BY 1, 2;
SELECT * FROM progress_now();

DROP TABLE progress_src, progress_1, progress_2, progress_4;
DROP FUNCTION progress_now;
