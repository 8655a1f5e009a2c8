-- metrics of writes: what is counted is right, and the phases add up to the wall time
SET extra_float_digits = 0;
SET max_parallel_workers_per_gather = 0;
CREATE TABLE stats_src AS
	SELECT i AS id, i % 100 AS k, md5(i::text) AS t FROM generate_series(1, 300000) i;

-- a session that has not written knows nothing
SELECT count(*) FROM shuffle_write_stats();

-- serial and inline: one process, whose phases fill the time that the caller measures.  What a
-- busy machine takes away outside of the write is no phase of it: that is not so ten times.
-- Estimating bounds runs the query once more: it counts, too
CREATE TABLE stats_wall ();
DO $$
DECLARE
	method text;
	before timestamptz;
	wall float8;
	s record;
BEGIN
	PERFORM set_config(name, '0', false) FROM pg_settings
	WHERE name = 'shuffle_ext.writer_threads';
	FOREACH method IN ARRAY '{hash,range}'::text[] LOOP
		FOR i IN 1..10 LOOP
			DROP TABLE stats_wall;
			before := clock_timestamp();
			PERFORM shuffle_write('SELECT * FROM stats_src UNION ALL SELECT * FROM stats_src',
				'stats_wall', partitions => 16, keys => '{t}', method => method);
			wall := extract(epoch FROM clock_timestamp() - before) * 1000;
			SELECT *, input_ms + repartition_ms + interleave_ms + encode_ms + write_ms + sync_ms
				+ queue_ms AS phases INTO STRICT s FROM shuffle_write_stats() WHERE process = 0;
			IF abs(s.phases - s.elapsed_ms) > 0.001 * s.elapsed_ms OR s.phases > wall THEN
				RAISE 'phases take % ms of % ms, the write % ms', s.phases, s.elapsed_ms, wall;
			END IF;
			IF least(s.input_ms, s.repartition_ms, s.interleave_ms, s.encode_ms, s.write_ms,
					s.sync_ms) <= 0 THEN
				RAISE 'a phase took no time: %', s;
			END IF;
			EXIT WHEN s.phases >= 0.95 * wall;
		END LOOP;
		IF s.phases < 0.95 * wall THEN
			RAISE '%: phases take % ms of % ms', method, s.phases, wall;
		END IF;
	END LOOP;
END $$;
SELECT sum(rows) FROM shuffle_write('SELECT * FROM stats_src', 'stats_1', partitions => 16, keys => '{id}');

-- counts against the segments themselves and the files' blocks
SELECT p.process, p.segments, p.rows, p.blocks, p.runs, p.raw_bytes = s.raw_bytes AS raw,
	p.stored_bytes = s.bytes AS stored, p.memory_peak BETWEEN s.raw_bytes / 4 AND 258 << 20 AS memory
FROM shuffle_process_stats p JOIN shuffle_segments s USING (relation)
WHERE relation = 'stats_1'::regclass;

-- what is stored is what the session was told; one row per process and their sum
SELECT w.process, to_jsonb(w) - 'process'
	= to_jsonb(p) - '{relation,write,process,written}'::text[] AS same
FROM shuffle_write_stats() w, shuffle_process_stats p
WHERE p.relation = 'stats_1'::regclass ORDER BY w.process;
SELECT processes, segments, rows, runs, written BETWEEN now() - interval '1 hour' AND clock_timestamp()
FROM shuffle_stats WHERE relation = 'stats_1'::regclass;

-- more runs with less memory
SET shuffle_ext.memory_limit = '8MB';
SELECT count(*) FROM shuffle_write('SELECT * FROM stats_src', 'stats_1', if_exists => 'append');
RESET shuffle_ext.memory_limit;
SELECT rows, runs > 3 AS runs, memory_peak <= 8 << 20 AS memory FROM shuffle_stats
WHERE relation = 'stats_1'::regclass ORDER BY written DESC LIMIT 1;
SELECT count(*), count(DISTINCT write) FROM shuffle_stats WHERE relation = 'stats_1'::regclass;

-- time that the query takes is input time; sampling does not miss slow rows
DO $$
DECLARE
	s record;
BEGIN
	FOR i IN 1..10 LOOP
		PERFORM shuffle_write(
			'SELECT i, pg_sleep(0.02) IS NULL AS slept FROM generate_series(1, 25) i',
			'stats_slow', partitions => 1, if_exists => 'replace');
		SELECT * INTO STRICT s FROM shuffle_write_stats() WHERE process = 0;
		IF s.input_ms NOT BETWEEN 500 AND s.elapsed_ms THEN
			RAISE 'input took % ms of % ms', s.input_ms, s.elapsed_ms;
		END IF;
		EXIT WHEN s.input_ms > 0.9 * s.elapsed_ms - s.write_ms - s.sync_ms;
	END LOOP;
	IF s.input_ms <= 0.9 * s.elapsed_ms - s.write_ms - s.sync_ms THEN
		RAISE 'input took only % ms: %', s.input_ms, s;
	END IF;
END $$;

-- parallel: every process counts for itself
SET max_parallel_workers_per_gather = 2;
SELECT count(*) FROM shuffle_write('SELECT * FROM stats_src', 'stats_2', partitions => 16, keys => '{id}', workers => 2);
SELECT bool_and(input_ms >= 0 AND abs(elapsed_ms - input_ms - repartition_ms - interleave_ms
	- encode_ms - write_ms - sync_ms - queue_ms) <= 0.001 * elapsed_ms) AS add_up, sum(rows)
FROM shuffle_process_stats WHERE relation = 'stats_2'::regclass;
SELECT (SELECT count(*) FROM shuffle_write_stats()) = processes + 1 AS processes, rows,
	elapsed_ms = (SELECT elapsed_ms FROM shuffle_write_stats() WHERE process IS NULL) AS elapsed
FROM shuffle_stats WHERE relation = 'stats_2'::regclass;

-- nothing written, nothing stored
SELECT count(*) FROM shuffle_write('SELECT * FROM stats_src WHERE false', 'stats_0', partitions => 16);
SELECT count(*) FROM shuffle_stats WHERE relation = 'stats_0'::regclass;

-- a write that is rolled back is gone from the views
BEGIN;
SELECT count(*) FROM shuffle_write('SELECT * FROM stats_src', 'stats_3', partitions => 16);
SELECT rows FROM shuffle_stats WHERE relation = 'stats_3'::regclass;
ROLLBACK;
SELECT count(*) FROM shuffle_stats WHERE rows = 300000 AND relation::text = 'stats_3';

-- only tables that one may read
CREATE ROLE regress_stats_reader;
GRANT SELECT ON stats_2 TO regress_stats_reader;
SET ROLE regress_stats_reader;
SELECT DISTINCT relation FROM shuffle_stats ORDER BY 1;
SELECT DISTINCT relation FROM shuffle_process_stats ORDER BY 1;
RESET ROLE;

DROP TABLE stats_src, stats_0, stats_1, stats_2, stats_slow, stats_wall;
DROP ROLE regress_stats_reader;
