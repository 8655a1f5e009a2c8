--
-- Writes whose offset index is larger than their memory: it leaves in files of its own,
-- which are gone when the rows are there
--
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA index_file;
SET search_path = index_file, public;
CREATE TABLE src (id int, t text);
INSERT INTO src SELECT i, md5(i::text) FROM generate_series(1, 120000) i;
ANALYZE src;
SET shuffle_ext.memory_limit = '2MB';
SET shuffle_ext.block_rows = 10;
SET shuffle_ext.block_min_rows = 1;
SET shuffle_ext.block_bytes = 16384;
SET shuffle_ext.write_buffer_size = '64kB';

CREATE FUNCTION differences(a text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM ((TABLE %1$s EXCEPT ALL TABLE src) UNION ALL (TABLE src EXCEPT ALL TABLE %1$s)) d', a) INTO n;
	RETURN n;
END $$;
-- segments, whether each has the blocks its index says, and files that should not be there
CREATE FUNCTION check_table(a text) RETURNS TABLE(many boolean, wrong bigint, differences bigint, index_files bigint) LANGUAGE sql AS $$
	SELECT (SELECT count(*) > 1 FROM shuffle_segments WHERE relation = a::regclass),
		(SELECT count(*) FROM shuffle_verify(a::regclass) WHERE error IS NOT NULL),
		differences(a),
		(SELECT count(*) FROM pg_database d, pg_ls_dir('pg_shuffle/' || d.oid || '/0_' || pg_relation_filenode(a)) f
			WHERE datname = current_database() AND f LIKE '%.index')
$$;

SELECT sum(rows) FROM shuffle_write('TABLE src', 'serial', 50, '{id}', workers => 0);
SELECT * FROM check_table('serial');
SELECT sum(memory_peak) <= 2 << 20 AS memory FROM shuffle_process_stats WHERE relation = 'serial'::regclass;
SET shuffle_ext.writer_threads = 0;
SELECT sum(rows) FROM shuffle_write('TABLE src', 'inline', 50, '{id}', workers => 0);
SELECT * FROM check_table('inline');
RESET shuffle_ext.writer_threads;
SELECT sum(rows) FROM shuffle_write('TABLE src', 'parts', 50, '{id}', layout => 'partition_files', workers => 0);
SELECT * FROM check_table('parts');
SELECT sum(rows) FROM shuffle_write('TABLE src', 'parallel', 50, '{id}', workers => 2);
SELECT * FROM check_table('parallel');
-- what is returned counts all segments
CREATE TABLE returned AS SELECT * FROM shuffle_write('TABLE src', 'parallel', if_exists => 'replace', workers => 2);
SELECT bool_and(w.rows = p.rows AND w.bytes = p.bytes AND w.blocks = p.blocks AND w.segments = p.segments) AS same, count(*)
	FROM returned w JOIN shuffle_partitions p USING (partition) WHERE p.relation = 'parallel'::regclass;

-- INSERT, also where its rows are read before it ends
CREATE TABLE inserted (LIKE src) USING shuffle;
SELECT shuffle_set('inserted', 50, '{id}') IS NOT NULL AS set;
INSERT INTO inserted TABLE src;
SELECT * FROM check_table('inserted');
TRUNCATE inserted;
CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
	BEGIN
		SELECT count(*) INTO n FROM inserted;
		RAISE WARNING 'there are % rows', n;
		IF current_setting('index_file.fail', true) = 'yes' THEN
			RAISE 'failed';
		END IF;
	EXCEPTION WHEN raise_exception THEN
		RAISE WARNING '%', SQLERRM;
	END;
	RETURN NULL;
END $$;
CREATE TRIGGER counted AFTER INSERT ON inserted EXECUTE FUNCTION counted();
INSERT INTO inserted TABLE src;
SELECT * FROM check_table('inserted');
TRUNCATE inserted;
SET index_file.fail = 'yes';
INSERT INTO inserted TABLE src;
SELECT * FROM check_table('inserted');
DROP TRIGGER counted ON inserted;

-- rewrites
VACUUM FULL inserted;
SELECT * FROM check_table('inserted');
CREATE TABLE ctas USING shuffle AS TABLE src;
SELECT * FROM check_table('ctas');
CREATE TABLE compacted (LIKE src) USING shuffle;
INSERT INTO compacted SELECT * FROM src WHERE id <= 60000;
INSERT INTO compacted SELECT * FROM src WHERE id > 60000;
SELECT segments_after > 1 AS many, rows FROM shuffle_compact('compacted');
SELECT wrong, differences, index_files FROM check_table('compacted');

-- rolled back: nothing stays
BEGIN;
SELECT sum(rows) FROM shuffle_write('TABLE src', 'serial', if_exists => 'append');
INSERT INTO serial TABLE src;
ROLLBACK;
SELECT * FROM check_table('serial');

-- a limit that is too small is an error before anything is done, and the one it names works
SET shuffle_ext.memory_limit = '1MB';
SET shuffle_ext.block_bytes = '1MB';
CREATE FUNCTION needed(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE detail text;
BEGIN
	EXECUTE query;
	RETURN 'done';
EXCEPTION WHEN configuration_limit_exceeded THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN substring(detail FROM 'at least ([0-9]+ kB)');
END $$;
SELECT needed($$SELECT shuffle_write('TABLE src', 'small', 50, '{id}', workers => 0)$$) AS needed \gset
SELECT rtrim(:'needed', ' kB')::int - 1 AS less \gset
SET shuffle_ext.memory_limit = :'less';
SELECT needed($$SELECT shuffle_write('TABLE src', 'small', 50, '{id}', workers => 0)$$) = :'needed' AS same;
SET shuffle_ext.memory_limit = :'needed';
SELECT needed($$SELECT shuffle_write('TABLE src', 'small', 50, '{id}', workers => 0)$$);
SELECT wrong, differences, index_files FROM check_table('small');

DROP SCHEMA index_file CASCADE;
