--
-- shuffle_ext.output_limit: what one statement may write
--
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA output_limit;
SET search_path = output_limit, public;
CREATE TABLE src (id int, t text);
INSERT INTO src SELECT i, md5(i::text) || md5((i + 1)::text) FROM generate_series(1, 100000) i;
ANALYZE src;

-- all files of shuffle tables of this schema
CREATE VIEW files AS
	SELECT s.relation, f FROM (SELECT 'pg_shuffle/' || oid AS base FROM pg_database WHERE datname = current_database()) d,
		pg_class c, pg_ls_dir(base || '/0_' || pg_relation_filenode(c.oid), true, false) f,
		LATERAL (SELECT c.oid::regclass AS relation) s
	WHERE c.relnamespace = 'output_limit'::regnamespace AND c.relkind IN ('r', 'm') AND c.relfilenode <> 0;

-- runs a statement with a limit; tells the error, and whether it came in time: the bytes
-- that are named are above the limit, by no more than what is written at once
CREATE FUNCTION limited(statement text, kb bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
	detail text;
	bytes bigint;
BEGIN
	PERFORM set_config('shuffle_ext.output_limit', kb || 'kB', true);
	EXECUTE statement;
	PERFORM set_config('shuffle_ext.output_limit', '0', true);
	RETURN 'written';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
	bytes := substring(detail FROM '[0-9]+');
	RETURN format('%s %s, %s', state, regexp_replace(message, '\d+', 'N'),
		CASE WHEN bytes > kb * 1024 AND bytes < kb * 1024 + 4 * 1024 * 1024 THEN 'in time' ELSE detail END);
END $$;

-- shuffle_write: what is written without a limit says where the limit is
SELECT sum(rows) FROM shuffle_write('TABLE src', 'whole', 8, '{id}', workers => 0);
SELECT bytes AS whole, (bytes + 1023) / 1024 AS fits, (bytes - 1) / 1024 AS less, bytes > 1000000 AS ok
	FROM shuffle_segments WHERE relation = 'whole'::regclass \gset
SELECT :'ok' AS ok;
SELECT limited($$SELECT shuffle_write('TABLE src', 'fits', 8, '{id}', workers => 0)$$, :fits);
SELECT sum(bytes) = :whole AS same, sum(rows) FROM shuffle_segments WHERE relation = 'fits'::regclass;
SELECT limited($$SELECT shuffle_write('TABLE src', 'less', 8, '{id}', workers => 0)$$, :less);
SELECT limited($$SELECT shuffle_write('TABLE src', 'less', 8, '{id}', workers => 0)$$, 100);
SELECT limited($$SELECT shuffle_write('TABLE src', 'less', 8, '{id}', layout => 'partition_files', workers => 0)$$, 100);
SET shuffle_ext.writer_threads = 0;
SELECT limited($$SELECT shuffle_write('TABLE src', 'less', 8, '{id}', workers => 0)$$, :less);
SELECT limited($$SELECT shuffle_write('TABLE src', 'less', 8, '{id}', workers => 0)$$, 100);
SELECT limited($$SELECT shuffle_write('TABLE src', 'less', 8, '{id}', layout => 'partition_files', workers => 0)$$, 100);
RESET shuffle_ext.writer_threads;
SELECT to_regclass('less');

-- an error of its own, not in a function
SET shuffle_ext.output_limit = '100kB';
SELECT * FROM shuffle_write('TABLE src', 'less', 8, '{id}');
RESET shuffle_ext.output_limit;

-- workers count together: more than any of them may
SET parallel_leader_participation = off;
SELECT limited($$SELECT shuffle_write('TABLE src', 'parallel', 8, '{id}', workers => 2)$$, :fits * 3 / 4);
SELECT limited($$SELECT shuffle_write('TABLE src', 'parallel', 8, '{id}', workers => 2)$$, :fits + 100);
RESET parallel_leader_participation;
SET shuffle_ext.writer_threads = 1;
SET shuffle_ext.memory_limit = '12MB';
SELECT limited($$SELECT shuffle_write('SELECT * FROM src a UNION ALL SELECT * FROM src b', 'threads', 8, '{id}', workers => 0)$$, :fits);
SELECT limited($$SELECT shuffle_write('TABLE src', 'threads', 8, '{id}', workers => 2)$$, :fits * 3 / 4);
RESET shuffle_ext.memory_limit;
RESET shuffle_ext.writer_threads;
SELECT limited($$SELECT shuffle_write('SELECT * FROM src a UNION ALL SELECT * FROM src b', 'parallel', 8, '{id}', if_exists => 'append', workers => 2)$$, :fits * 3 / 2);
SELECT count(*) FROM parallel;

-- INSERT, with files and without, COPY, CREATE TABLE AS, REFRESH, rewrites, compaction
CREATE TABLE i (LIKE src) USING shuffle;
SELECT shuffle_set('i', 8, '{id}') IS NOT NULL AS set;
SELECT limited('INSERT INTO i TABLE src', :less);
SELECT limited('INSERT INTO i TABLE src', :fits);
SELECT limited('INSERT INTO i SELECT * FROM src LIMIT 100', 10);
SELECT limited('INSERT INTO i SELECT * FROM src LIMIT 100', 60);
SELECT (SELECT count(*) FROM i) AS rows, (SELECT count(*) FROM files WHERE relation = 'i'::regclass) AS files;
SET shuffle_ext.output_limit = '1MB';
COPY i FROM PROGRAM 'seq 1 600000 | sed "s/$/	long enough to be seen &/"';
CREATE TABLE ctas USING shuffle AS TABLE src;
CREATE MATERIALIZED VIEW m USING shuffle AS SELECT * FROM src LIMIT 1000;
TRUNCATE src;
INSERT INTO src SELECT i, md5(i::text) || md5((i + 1)::text) FROM generate_series(1, 50000) i;
CREATE OR REPLACE VIEW rows AS TABLE src;
CREATE MATERIALIZED VIEW all_rows USING shuffle AS TABLE rows WITH NO DATA;
REFRESH MATERIALIZED VIEW all_rows;
VACUUM FULL i;
ALTER TABLE i ALTER COLUMN id TYPE bigint;
RESET shuffle_ext.output_limit;
SELECT count(*) FROM i;
-- nothing is left of what failed
SELECT f.* FROM files f WHERE NOT EXISTS
	(SELECT FROM shuffle_segments s WHERE s.relation = f.relation AND s.path LIKE '%/' || f.f || '%');

-- several tables and calls of one statement count together, statements do not
CREATE TABLE twice (LIKE src) USING shuffle;
SET shuffle_ext.output_limit = '3MB';
INSERT INTO twice TABLE src;
INSERT INTO twice TABLE src;
SELECT shuffle_compact('twice');
BEGIN;
WITH a AS (INSERT INTO twice TABLE src)
	SELECT sum(rows) FROM shuffle_write('TABLE src', 'other', 1);
ROLLBACK;
BEGIN;
INSERT INTO twice TABLE src;
SELECT sum(rows) FROM shuffle_write('TABLE src', 'other', 1);
INSERT INTO twice TABLE src;
COMMIT;
SELECT count(*) FROM shuffle_write('TABLE src', 'other', if_exists => 'append') a(p),
	shuffle_write('TABLE src', 'other', if_exists => 'append') b(q);
RESET shuffle_ext.output_limit;
SELECT segments_before, segments_after, rows FROM shuffle_compact('twice');
SELECT (SELECT count(*) FROM twice) AS twice, (SELECT count(*) FROM other) AS other;

-- who may set it
CREATE ROLE regress_output_limit;
SET ROLE regress_output_limit;
SET shuffle_ext.output_limit = 0;
RESET ROLE;
DROP ROLE regress_output_limit;
DROP SCHEMA output_limit CASCADE;
