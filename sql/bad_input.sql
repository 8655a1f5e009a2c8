--
-- What shuffle_write refuses, and that nothing is left behind
--
\set SHOW_CONTEXT never
CREATE SCHEMA bad_input;
SET search_path = bad_input, public;
SET client_min_messages = warning;
CREATE TABLE src (id int, name text, p point, j json);
INSERT INTO src SELECT i, 'name ' || i, point(i, i), '{}' FROM generate_series(1, 10) i;

-- arguments: null, out of range, unknown
SELECT * FROM shuffle_write(NULL, 't');
SELECT * FROM shuffle_write('SELECT 1 AS a', NULL);
SELECT * FROM shuffle_write('SELECT * FROM src', 't', partitions => 0);
SELECT * FROM shuffle_write('SELECT * FROM src', 't', partitions => -1);
SELECT * FROM shuffle_write('SELECT * FROM src', 't', partitions => 1000001);
SELECT * FROM shuffle_write('SELECT * FROM src', 't', partitions => 4097, layout => 'partition_files');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', method => 'zigzag');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', hash => 'md5');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', layout => 'heap');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', codec => 'gzip');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', codec => 'zstd:99');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', codec => 'lz4:x');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', types => 'avro');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', unrepresentable => 'ignore');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', if_exists => 'truncate');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', workers => -1);
SELECT * FROM shuffle_write('SELECT * FROM src', 't', workers => 2000);
SELECT * FROM shuffle_write('SELECT * FROM src', 't', partitions => 2, method => 'single');

-- keys
SELECT * FROM shuffle_write('SELECT * FROM src', 't', keys => '{nope}');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', keys => '{5}');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', keys => '{0}');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', keys => '{id,id}');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', keys => '{id,1}');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', keys => '{NULL}');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', keys => '{{id},{name}}');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', method => 'hash');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', method => 'round_robin', keys => '{id}');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', keys => '{p}');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', keys => '{j}', method => 'range', partitions => 2);

-- bounds
SELECT * FROM shuffle_write('SELECT * FROM src', 't', 3, '{id}', 'range', '{5,2}');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', 3, '{id}', 'range', '{5,5}');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', 3, '{id}', 'range', '{5}');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', 3, '{id}', 'range', '{1,2,3}');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', 3, '{id}', 'range', '{1,x}');
SELECT * FROM shuffle_write('SELECT * FROM src', 't', 3, '{id}', 'hash', '{1,2}');

-- relations that do not exist
SELECT shuffle_fetch(1::regclass, 0);
SELECT shuffle_verify(1::regclass);
SELECT shuffle_skew(1::regclass);
SELECT shuffle_compact(1::regclass);
SELECT shuffle_set(1::regclass);
\echo :LAST_ERROR_SQLSTATE

-- query: empty, several statements, not a query
SELECT * FROM shuffle_write('', 't');
SELECT * FROM shuffle_write(' -- nothing', 't');
SELECT * FROM shuffle_write('SELECT 1 AS a;  SELECT 2 AS b', 't');
SELECT * FROM shuffle_write('INSERT INTO src VALUES (1)', 't');
SELECT * FROM shuffle_write('INSERT INTO src VALUES (1) RETURNING *', 't');
SELECT * FROM shuffle_write('UPDATE src SET id = 0', 't');
SELECT * FROM shuffle_write('DELETE FROM src RETURNING *', 't');
SELECT * FROM shuffle_write('CREATE TABLE x (a int)', 't');
SELECT * FROM shuffle_write('CREATE TABLE x AS SELECT 1', 't');
SELECT * FROM shuffle_write('COPY src TO STDOUT', 't');
SELECT * FROM shuffle_write('EXPLAIN SELECT 1', 't');
SELECT * FROM shuffle_write('SELECT id INTO x FROM src', 't');
SELECT * FROM shuffle_write('SELECT id INTO x FROM src UNION SELECT 1', 't');
SELECT * FROM shuffle_write('WITH d AS (DELETE FROM src RETURNING *) SELECT * FROM d', 't');
SELECT * FROM shuffle_write('SELECT * FROM (WITH d AS (DELETE FROM src RETURNING *) SELECT * FROM d) s', 't');

-- query: errors point into the text that the user wrote
SELECT * FROM shuffle_write('SELECT id FRM src', 't');
SELECT * FROM shuffle_write('SELECT id,
       nope
  FROM src', 't');
SELECT * FROM shuffle_write('SELECT * FROM src WHERE id = $1', 't');
SELECT * FROM shuffle_write('SELECT * FROM nowhere', 't');
SELECT * FROM shuffle_write('SELECT id / 0 AS a FROM src', 't');
SELECT * FROM shuffle_write('SELECT q.c1 FROM src', 't');

-- output columns
SELECT * FROM shuffle_write('SELECT id, name, id FROM src', 't');
SELECT * FROM shuffle_write('SELECT 1, 2', 't');
SELECT * FROM shuffle_write('SELECT id, ROW(id, name) AS r FROM src', 't');
SELECT * FROM shuffle_write('SELECT id, pg_sleep(0) AS v FROM src', 't');
SELECT * FROM shuffle_write('SELECT id AS ctid FROM src', 't');

-- target: its name and what has it already
SELECT * FROM shuffle_write('SELECT * FROM src', '');
SELECT * FROM shuffle_write('SELECT * FROM src', 'a.b.c.d');
SELECT * FROM shuffle_write('SELECT * FROM src', 'no_schema.t');
CREATE VIEW a_view AS SELECT * FROM src;
CREATE SEQUENCE a_sequence;
CREATE TABLE a_partitioned (id int) PARTITION BY LIST (id);
SELECT * FROM shuffle_write('SELECT * FROM src', 'a_view');
SELECT * FROM shuffle_write('SELECT * FROM src', 'a_view', if_exists => 'replace');
SELECT * FROM shuffle_write('SELECT * FROM src', 'a_sequence', if_exists => 'append');
SELECT * FROM shuffle_write('SELECT * FROM src', 'a_partitioned', if_exists => 'append');
SELECT * FROM shuffle_write('SELECT * FROM src', 'src');
SELECT * FROM shuffle_write('SELECT * FROM src', 'src', if_exists => 'append');
SELECT * FROM shuffle_write('SELECT * FROM src', 'src', if_exists => 'replace');
SELECT * FROM shuffle_write('SELECT * FROM src', 'pg_class', if_exists => 'replace');
SELECT * FROM shuffle_write('SELECT * FROM src', 'pg_catalog.t');
SELECT * FROM shuffle_write('SELECT * FROM src', 'pg_toast.t');
SELECT * FROM shuffle_write('SELECT * FROM src', 'information_schema.t');
SELECT * FROM shuffle_write('SELECT * FROM src', 'pg_temp.t');

-- privileges: on the schema, on the source, on the target
CREATE ROLE regress_shuffle_nobody;
GRANT USAGE ON SCHEMA bad_input TO regress_shuffle_nobody;
SELECT sum(rows) FROM shuffle_write('SELECT id FROM src', 'owned', method => 'single');
SET ROLE regress_shuffle_nobody;
SELECT * FROM shuffle_write('SELECT 1 AS a', 'bad_input.t');
SELECT * FROM shuffle_write('SELECT * FROM src', 't');
SELECT * FROM shuffle_write('SELECT 1', 'owned', if_exists => 'append');
SELECT * FROM shuffle_write('SELECT 1', 'owned', if_exists => 'replace');
RESET ROLE;
GRANT INSERT ON owned TO regress_shuffle_nobody;
GRANT SELECT (name) ON src TO regress_shuffle_nobody;
SET ROLE regress_shuffle_nobody;
SELECT * FROM shuffle_write('SELECT id FROM src', 'owned', if_exists => 'append');
SELECT sum(rows) FROM shuffle_write('SELECT length(name) FROM src', 'owned', if_exists => 'append');
RESET ROLE;

-- append and replace: columns and options
SELECT * FROM shuffle_write('SELECT 1', 'owned');
SELECT * FROM shuffle_write('SELECT 1, 2 AS b', 'owned', if_exists => 'append');
SELECT * FROM shuffle_write('SELECT ''x''', 'owned', if_exists => 'append');
SELECT * FROM shuffle_write('SELECT point(1,1)', 'owned', if_exists => 'append');
SELECT * FROM shuffle_write('SELECT 1::bigint', 'owned', if_exists => 'replace');
SELECT * FROM shuffle_write('SELECT 1', 'owned', 7, if_exists => 'append');
SELECT * FROM shuffle_write('SELECT 1 AS a', 'owned', keys => '{a}', if_exists => 'append');
SELECT * FROM shuffle_write('SELECT 1', 'owned', codec => 'zstd:5', if_exists => 'append');
SELECT * FROM shuffle_write('SELECT 1', 'owned', types => 'native', if_exists => 'append');
SELECT * FROM shuffle_write('SELECT 1', 'owned', unrepresentable => 'null', if_exists => 'append');
ALTER TABLE owned ALTER id SET NOT NULL;
SELECT * FROM shuffle_write('SELECT NULL::int', 'owned', if_exists => 'append');
ALTER TABLE owned ADD CONSTRAINT positive CHECK (id > 0);
SELECT * FROM shuffle_write('SELECT 1', 'owned', if_exists => 'append');

-- values without an Arrow form
SELECT * FROM shuffle_write('SELECT id, date ''infinity'' AS d FROM src', 't');
SELECT * FROM shuffle_write('SELECT ''NaN''::numeric(5,2) AS n', 't');
SELECT * FROM shuffle_write('SELECT time ''24:00:00'' AS t', 't');
SELECT * FROM shuffle_write('SELECT ARRAY[[1,2],[3,4]] AS a', 't');

-- too little memory
SET shuffle_ext.memory_limit = '1MB';
DO $$
DECLARE
	detail text;
BEGIN
	PERFORM * FROM shuffle_write('SELECT * FROM src', 't', partitions => 1000000);
EXCEPTION WHEN configuration_limit_exceeded THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RAISE EXCEPTION '% %', SQLERRM, regexp_replace(detail, '\d+ kB\.$', 'N kB.');
END $$;
RESET shuffle_ext.memory_limit;

-- read-only
BEGIN READ ONLY;
SELECT * FROM shuffle_write('SELECT * FROM src', 't');
ROLLBACK;

-- the sink by itself
SELECT shuffle_sink('\x00'::bytea, id) FROM src;
SELECT shuffle_sink('\x000000000000000000000000'::bytea, id) FROM src;
SELECT shuffle_sink(NULL::bytea, id) FROM src;
SELECT shuffle_sink('\x000000000000000000000000'::bytea);
SELECT shuffle_sink_row('\x000000000000000000000000'::bytea, src) FROM src;
SELECT shuffle_sink('\x000000000000000000000000'::bytea, id) OVER () FROM src;

-- nothing is left but what two calls above have written
SELECT relname FROM pg_class WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'shuffle') ORDER BY 1;
SELECT count(*), count(pg_stat_file(path)) AS files FROM shuffle_segments WHERE relation = 'owned'::regclass;
SELECT count(*) AS files FROM (SELECT 'pg_shuffle/' || oid AS base FROM pg_database WHERE datname = current_database()) d,
	pg_ls_dir(base) AS storage, pg_ls_dir(base || '/' || storage) AS file
	WHERE storage = (SELECT '0_' || pg_relation_filenode('owned'));
SELECT count(*) AS files FROM shuffle_segments s
	RIGHT JOIN (SELECT base || '/' || storage || '/' || file AS path
				FROM (SELECT 'pg_shuffle/' || oid AS base FROM pg_database WHERE datname = current_database()) d,
					pg_ls_dir(base) AS storage, pg_ls_dir(base || '/' || storage) AS file) f USING (path)
	WHERE s.relation IS NULL;

DROP OWNED BY regress_shuffle_nobody;
DROP ROLE regress_shuffle_nobody;
\set VERBOSITY terse
DROP SCHEMA bad_input CASCADE;

-- Reading a table runs no code of those who own its types: superusers read, and pg_dump.
-- Input functions of ranges would: of a domain's constraint, or a canonical function.
CREATE FUNCTION armed_check() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('shuffle_test.armed', true) = 'on' THEN
		RAISE 'code of the type''s owner runs as %', current_user;
	END IF;
	RETURN true;
END
$$;
CREATE DOMAIN armed AS int CHECK (armed_check());
CREATE TYPE armed_range AS RANGE (subtype = armed, multirange_type_name = armed_multirange);
CREATE TYPE armed_pair AS (a armed, b text);
CREATE TYPE pair_range AS RANGE (subtype = armed_pair);
CREATE TYPE array_range AS RANGE (subtype = armed[]);
CREATE TYPE plain_range AS RANGE (subtype = int4);
CREATE TYPE canonical_range;
CREATE FUNCTION canonical_range_canonical(canonical_range) RETURNS canonical_range
	LANGUAGE internal IMMUTABLE STRICT AS 'int4range_canonical';
CREATE TYPE canonical_range AS RANGE (subtype = int4, canonical = canonical_range_canonical);
CREATE TABLE users_types (r armed_range) USING shuffle;
INSERT INTO users_types VALUES ('[1,2)');
SELECT rows FROM shuffle_write('SELECT armed_multirange(armed_range(1, 2)) AS m', 'no_users_types');
SELECT rows FROM shuffle_write('SELECT ARRAY[armed_range(1, 2)] AS a', 'no_users_types');
SELECT rows FROM shuffle_write('SELECT NULL::pair_range AS p', 'no_users_types');
SELECT rows FROM shuffle_write('SELECT NULL::array_range AS p', 'no_users_types');
SELECT shuffle_set('users_types', types => 'native');
INSERT INTO users_types VALUES ('[1,2)');
CREATE TABLE users_types_arrow (d armed, a armed[], c armed_pair, ca armed_pair[], p plain_range, n canonical_range)
	USING shuffle;
INSERT INTO users_types_arrow VALUES (1, '{2,3}', '(4,x)', '{"(5,y)"}', '[6,7)', '[8,8]');
SET shuffle_test.armed = on;
SELECT '[1,2)'::armed_range;
SELECT * FROM users_types;
SELECT * FROM users_types_arrow;
RESET shuffle_test.armed;
CREATE OR REPLACE FUNCTION canonical_range_canonical(canonical_range) RETURNS canonical_range
	LANGUAGE plpgsql IMMUTABLE STRICT AS $$ BEGIN RAISE 'code of the type''s owner runs'; END $$;
SELECT * FROM users_types_arrow;
SELECT d, p FROM users_types_arrow;
INSERT INTO users_types_arrow (d) VALUES (2);
DROP TABLE users_types, users_types_arrow;
DROP TYPE armed_range, pair_range, array_range, plain_range;
DROP TYPE canonical_range CASCADE;
DROP TYPE armed_pair;
DROP DOMAIN armed;
DROP FUNCTION armed_check;
