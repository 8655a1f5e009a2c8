--
-- shuffle_write: what is written is what the query returned
--
\set SHOW_CONTEXT never
CREATE SCHEMA write_test;
SET search_path = write_test, public;
SET client_min_messages = warning;

-- Rows that one query has and the other has not, both ways.
CREATE FUNCTION differences(a text, b text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM ((%1$s EXCEPT ALL %2$s) UNION ALL (%2$s EXCEPT ALL %1$s)) d',
				   '(' || a || ')', '(' || b || ')') INTO n;
	RETURN n;
END $$;

CREATE TABLE src (id int, name varchar(20), price numeric(10,2), made date, note text COLLATE "C");
INSERT INTO src
	SELECT i, 'name ' || i, i * 1.25, date '2020-01-01' + i, CASE WHEN i % 3 = 0 THEN 'note ' || i END
	FROM generate_series(1, 1000) i;

--
-- The result: one row for each partition, and where the rows went
--
CREATE TABLE model (id int) PARTITION BY HASH (id);
SELECT partition, rows, bytes > 0 AS bytes, raw_bytes > 0 AS raw_bytes, blocks, segments
	FROM shuffle_write('SELECT * FROM src', 't', partitions => 4, keys => '{id}', workers => 0);
SELECT differences('TABLE src', 'TABLE t');
SELECT p, count(*) FILTER (WHERE satisfies_hash_partition('model'::regclass, 4, p, id)) AS right,
	count(*) FILTER (WHERE NOT satisfies_hash_partition('model'::regclass, 4, p, id)) AS wrong
	FROM generate_series(0, 3) p, shuffle_read(NULL::t, p) GROUP BY p ORDER BY p;
-- columns, types, typmods and collations are the query's
SELECT attname, format_type(atttypid, atttypmod), attcollation::regcollation
	FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum;

-- empty partitions have rows too; no rows are no segments
SELECT * FROM shuffle_write('SELECT 7 AS a, ''x'' AS b', 'one_row', 3, '{a}', workers => 0);
SELECT partition, rows, bytes, raw_bytes, blocks, segments
	FROM shuffle_write('SELECT * FROM src WHERE false', 'no_rows', 2);
SELECT count(*) FROM no_rows;
SELECT count(*) FROM shuffle_segments WHERE relation = 'no_rows'::regclass;
-- no columns: rows are counted
SELECT sum(rows) FROM shuffle_write('SELECT FROM src', 'no_columns', 3);
SELECT count(*) FROM no_columns;
-- in the select list
SELECT shuffle_write('SELECT 1 AS a', 'in_list', 2, workers => 0) IS NOT NULL AS row;

--
-- Kinds of queries
--
SELECT sum(rows) FROM shuffle_write('VALUES (1, ''a''), (2, NULL)', 'q_values', 2);
SELECT * FROM q_values ORDER BY 1;
SELECT sum(rows) FROM shuffle_write('TABLE src;', 'q_table', 2);
SELECT sum(rows) FROM shuffle_write('WITH a AS (SELECT id FROM src WHERE id < 10) SELECT id, id * 2 AS twice FROM a', 'q_with', 2);
SELECT sum(rows) FROM shuffle_write('SELECT id FROM src UNION ALL SELECT -id FROM src -- comment', 'q_union', 3, '{id}');
SELECT differences('SELECT id FROM src UNION ALL SELECT -id FROM src', 'TABLE q_union');
SELECT sum(rows) FROM shuffle_write('SELECT s.id, count(*) AS n FROM src s JOIN src o ON o.id <= s.id WHERE s.id <= 20 GROUP BY s.id', 'q_join', 3, '{1}');
SELECT sum(n) FROM q_join;
SELECT sum(rows) FROM shuffle_write('SELECT generate_series(1, id) AS g FROM src WHERE id <= 10', 'q_srf', 2);
SELECT count(*), sum(g) FROM q_srf;
SELECT sum(rows) FROM shuffle_write('SELECT id FROM src LIMIT 10', 'q_limit', 2);
SELECT sum(rows) FROM shuffle_write('SELECT id FROM src WHERE id < 5 FOR UPDATE', 'q_lock', 2);
SELECT sum(rows) FROM shuffle_write('SELECT ''literal'' AS a, NULL AS b', 'q_unknown', 1);
SELECT attname, atttypid::regtype FROM pg_attribute WHERE attrelid = 'q_unknown'::regclass AND attnum > 0;
-- the order of the query is kept inside each partition
SELECT sum(rows) FROM shuffle_write('SELECT id FROM src ORDER BY id DESC', 'q_order', 3, '{id}');
SELECT p, count(*), array_agg(id) = array_agg(id ORDER BY id DESC) AS ordered
	FROM generate_series(0, 2) p, shuffle_read(NULL::q_order, p) GROUP BY p ORDER BY p;

--
-- Many columns: 90 go one by one, 91 as a row
--
SELECT format('SELECT %s FROM src WHERE id <= 100',
			  string_agg(CASE i % 3 WHEN 0 THEN format('id + %s AS c%1$s', i)
						 WHEN 1 THEN format('note || %s AS c%1$s', i)
						 ELSE format('price * %s AS c%1$s', i) END, ', ')) AS q90
	FROM generate_series(1, 90) i \gset
SELECT format('SELECT %s FROM src WHERE id <= 100',
			  string_agg(CASE i % 3 WHEN 0 THEN format('id + %s AS c%1$s', i)
						 WHEN 1 THEN format('note || %s AS c%1$s', i)
						 ELSE format('price * %s AS c%1$s', i) END, ', ')) AS q91
	FROM generate_series(1, 91) i \gset
SELECT format('SELECT %s FROM src WHERE id <= 10', string_agg(format('id + %s AS c%1$s', i), ', ')) AS q1600
	FROM generate_series(1, 1600) i \gset
SELECT sum(rows) FROM shuffle_write(:'q90', 'wide90', 3, '{c3}');
SELECT differences(:'q90', 'TABLE wide90');
SELECT sum(rows) FROM shuffle_write(:'q91', 'wide91', 3, '{c3,c91}');
SELECT differences(:'q91', 'TABLE wide91');
SELECT sum(rows) FROM shuffle_write(:'q1600', 'wide1600', 1);
SELECT differences('SELECT w::text FROM (' || :'q1600' || ') w', 'SELECT w::text FROM wide1600 w');

--
-- Methods
--
SELECT partition, rows FROM shuffle_write('TABLE src', 'm_round', 3, workers => 0);
SELECT partition, rows FROM shuffle_write('TABLE src', 'm_single', method => 'single');
SELECT partition, rows FROM shuffle_write('TABLE src', 'm_range', keys => '{id}', method => 'range', bounds => '{11,501}');
SELECT p, min(id), max(id) FROM generate_series(0, 2) p, shuffle_read(NULL::m_range, p) GROUP BY p ORDER BY p;
SELECT partition, rows FROM shuffle_write('TABLE src', 'm_range2', 3, '{made,id}', 'range', '{"(2020-02-01,5)","(2020-02-01,40)"}');
SELECT count(*), min(rows) > 150, max(rows) < 350 FROM shuffle_write('TABLE src', 'm_range3', 4, '{id}', 'range');
SELECT partition, rows FROM shuffle_write('SELECT NULLIF(id, 500) AS id FROM src', 'm_nulls', keys => '{id}', method => 'range', bounds => '{501}');
SELECT count(*) FILTER (WHERE id IS NULL) FROM shuffle_read(NULL::m_nulls, 1);

--
-- Layouts and codecs
--
SELECT count(*), sum(rows), max(segments) FROM shuffle_write('TABLE src', 'l_files', 5, '{id}', layout => 'partition_files', workers => 0);
SELECT differences('TABLE src', 'TABLE l_files');
SELECT codec, rows, differences('TABLE src', format('TABLE %I', 'c_' || codec))
	FROM (VALUES ('none'), ('lz4'), ('lz4:9'), ('zstd'), ('zstd:-5')) c(codec),
		LATERAL (SELECT sum(rows) AS rows FROM shuffle_write('TABLE src', format('%I', 'c_' || codec), 3, '{id}', codec => codec)) w;

--
-- Append
--
CREATE TABLE made (a int, gone text, b varchar(5), c numeric(6,1) NOT NULL) USING shuffle;
ALTER TABLE made DROP COLUMN gone;
SELECT * FROM shuffle_write('SELECT 1 AS x, ''one'' AS y, 1.25 AS z', 'made');
SELECT partition, rows FROM shuffle_write('SELECT 1 AS x, ''one'' AS y, 1.25 AS z', 'made', if_exists => 'append');
SELECT partition, rows FROM shuffle_write('SELECT 2::bigint, ''two''::text, 2 AS z', 'made', 1, if_exists => 'append');
SELECT * FROM shuffle_write('SELECT 3 AS x, ''too long'' AS y, 3 AS z', 'made', if_exists => 'append');
SELECT * FROM shuffle_write('SELECT 3 AS x, ''three'' AS y, NULL::int AS z', 'made', if_exists => 'append');
SELECT * FROM shuffle_write('SELECT 99999999999 AS x, ''x'' AS y, 1 AS z', 'made', if_exists => 'append');
SELECT * FROM made ORDER BY a;
SELECT sum(rows) FROM shuffle_write('SELECT id + 1000 AS other, name, price, made, note FROM src', 't', 4, '{other}', 'hash', if_exists => 'append');
SELECT count(*), count(DISTINCT id) FROM t;
-- the query may read the table it appends to
SELECT sum(rows) FROM shuffle_write('TABLE t', 't', if_exists => 'append');
SELECT count(*), count(DISTINCT id) FROM t;
-- a name that does not exist yet is created
SELECT sum(rows) FROM shuffle_write('SELECT 1 AS a', 'appended', if_exists => 'append');

--
-- Replace
--
CREATE VIEW on_t AS SELECT id, name FROM t;
CREATE ROLE regress_shuffle_reader;
GRANT SELECT ON t TO regress_shuffle_reader;
SELECT 't'::regclass::oid AS oid_before \gset
SELECT sum(rows) FROM shuffle_write('SELECT * FROM t WHERE id <= 500', 't', if_exists => 'replace');
SELECT count(*), max(id) FROM t;
SELECT count(*) FROM on_t;
SELECT 't'::regclass::oid = :oid_before AS same_oid, has_table_privilege('regress_shuffle_reader', 't', 'select');
SELECT label FROM pg_seclabels WHERE objoid = 't'::regclass AND objsubid = 0;
SELECT sum(rows), count(*) FROM shuffle_write('TABLE t', 't', 2, codec => 'zstd:1', if_exists => 'replace');
SELECT label FROM pg_seclabels WHERE objoid = 't'::regclass AND objsubid = 0;
SELECT sum(rows), count(*) FROM shuffle_write('TABLE t', 't', method => 'round_robin', if_exists => 'replace');
SELECT label FROM pg_seclabels WHERE objoid = 't'::regclass ORDER BY objsubid;
SELECT sum(rows), count(*) FROM shuffle_write('TABLE t', 't', keys => '{name}', if_exists => 'replace');
SELECT objsubid, label FROM pg_seclabels WHERE objoid = 't'::regclass ORDER BY objsubid;
-- no more segments than the last call wrote, and no transient relation
SELECT sum(rows) FROM shuffle_segments WHERE relation = 't'::regclass;
SELECT count(*) FROM pg_class WHERE relname LIKE 'pg_temp%' AND relkind = 'r';
-- not while somebody in this session reads it
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM t;
FETCH 1 FROM c \g /dev/null
SELECT * FROM shuffle_write('TABLE src', 't', if_exists => 'replace');
ROLLBACK;
DROP OWNED BY regress_shuffle_reader;
DROP ROLE regress_shuffle_reader;

--
-- Transactions, subtransactions, callers
--
BEGIN;
INSERT INTO src VALUES (0);
SELECT sum(rows) FROM shuffle_write('SELECT id FROM src', 'x_own', 2);
SAVEPOINT s;
SELECT sum(rows) FROM shuffle_write('SELECT id FROM src', 'x_gone', 2);
SELECT sum(rows) FROM shuffle_write('SELECT 42', 'x_own', if_exists => 'append');
SELECT count(*) FROM x_own;
ROLLBACK TO s;
SELECT count(*) FROM x_own;
SELECT to_regclass('x_gone');
SAVEPOINT s;
SELECT sum(rows) FROM shuffle_write('SELECT 1', 'x_own', if_exists => 'replace');
SELECT count(*) FROM x_own;
ROLLBACK TO s;
SELECT count(*) FROM x_own;
ROLLBACK;
SELECT to_regclass('x_own');

-- plpgsql, with a handler that catches an error in the middle
DO $$
DECLARE n bigint;
BEGIN
	FOR i IN 1 .. 3 LOOP
		SELECT sum(rows) INTO n FROM shuffle_write('SELECT ' || i || ' AS a', 'p_loop', 2, if_exists => 'append');
		BEGIN
			PERFORM shuffle_write('SELECT 10 / (3 - g) FROM generate_series(1, 3) g', 'p_loop', if_exists => 'append');
		EXCEPTION WHEN division_by_zero THEN
			RAISE WARNING 'caught %', SQLERRM;
		END;
	END LOOP;
END $$;
SELECT a FROM p_loop ORDER BY a;

-- cursors
BEGIN;
DECLARE c CURSOR FOR SELECT partition, rows FROM shuffle_write('SELECT generate_series(1, 10) AS a', 'by_cursor', 2, workers => 0);
FETCH 1 FROM c;
FETCH 1 FROM c;
COMMIT;
SELECT count(*) FROM by_cursor;

-- several calls in one query, and a call inside the query of another
SELECT n, sum(rows) FROM generate_series(1, 3) n,
	LATERAL shuffle_write('SELECT generate_series(1, ' || n || ') AS a', 'several', 2, if_exists => 'append') GROUP BY n ORDER BY n;
SELECT count(*) FROM several;
CREATE FUNCTION inner_write(n int) RETURNS bigint LANGUAGE sql VOLATILE
	AS $$ SELECT sum(rows)::bigint FROM shuffle_write('SELECT generate_series(1, ' || n || ') AS a', 'inner_' || n, 2) $$;
SELECT sum(rows) FROM shuffle_write('SELECT n, inner_write(n) AS rows FROM generate_series(1, 2) n', 'outer_one', 2);
SELECT * FROM outer_one ORDER BY n;
SELECT (SELECT count(*) FROM inner_1), (SELECT count(*) FROM inner_2);

--
-- The caller's rights
--
CREATE ROLE regress_shuffle_writer;
GRANT CREATE, USAGE ON SCHEMA write_test TO regress_shuffle_writer;
CREATE TABLE secret (owner name, v int, hidden int);
INSERT INTO secret VALUES ('regress_shuffle_writer', 1, 1), ('somebody', 2, 2);
ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON secret USING (owner = current_user);
GRANT SELECT (owner, v) ON secret TO regress_shuffle_writer;
SET ROLE regress_shuffle_writer;
SELECT sum(rows) FROM shuffle_write('SELECT owner, v FROM secret', 'r_rls', 2);
SELECT * FROM shuffle_write('SELECT hidden FROM secret', 'r_grant', 2);
SELECT * FROM r_rls;
SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'r_rls'::regclass;
RESET ROLE;
-- row security of the target is not for shuffle_write to apply
GRANT SELECT, INSERT ON several TO regress_shuffle_writer;
ALTER TABLE several ENABLE ROW LEVEL SECURITY;
SET ROLE regress_shuffle_writer;
SELECT * FROM shuffle_write('SELECT 1', 'several', if_exists => 'append');
RESET ROLE;
-- what INSERT would have to do it refuses
CREATE TABLE g (a int, b int GENERATED ALWAYS AS (a + 1) STORED) USING shuffle;
SELECT * FROM shuffle_write('SELECT 1 AS a, 2 AS b', 'g', if_exists => 'append');
CREATE TABLE i (a int GENERATED ALWAYS AS IDENTITY) USING shuffle;
SELECT * FROM shuffle_write('SELECT 1', 'i', if_exists => 'append');
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TABLE tr (a int) USING shuffle;
CREATE TRIGGER tr BEFORE INSERT ON tr FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT * FROM shuffle_write('SELECT 1', 'tr', if_exists => 'append');
-- nor what a subscriber would miss
CREATE TABLE pub (a int) USING shuffle;
SET client_min_messages = error;	-- wal_level
CREATE PUBLICATION regress_shuffle FOR TABLE pub;
SET client_min_messages = warning;
SELECT * FROM shuffle_write('SELECT 1', 'pub', if_exists => 'append');
DROP PUBLICATION regress_shuffle;
SELECT count(*) FROM shuffle_write('SELECT 1', 'pub', if_exists => 'append');
DROP OWNED BY regress_shuffle_writer;
DROP ROLE regress_shuffle_writer;

--
-- Columns are taken out of the input row where it has them: partitions that lie
-- differently on disk, columns in another order, twice, of another name for the same
-- representation, into a table with a dropped column, and next to an expression
--
CREATE TABLE parted (a int, gone int, b text, c numeric(10,2)) PARTITION BY RANGE (a);
ALTER TABLE parted DROP COLUMN gone;
CREATE TABLE parted_1 (c numeric(10,2), b text, a int);
ALTER TABLE parted ATTACH PARTITION parted_1 FOR VALUES FROM (0) TO (500);
CREATE TABLE parted_2 (gone float8, a int, c numeric(10,2), b text);
ALTER TABLE parted_2 DROP COLUMN gone;
ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES FROM (500) TO (1000);
INSERT INTO parted SELECT i, CASE WHEN i % 7 > 0 THEN 'v' || i END, i / 3.0 FROM generate_series(0, 999) i;
CREATE FUNCTION direct_check(query text, target text, workers int) RETURNS TABLE(written numeric, different bigint)
LANGUAGE plpgsql AS $$
BEGIN
	SELECT sum(rows) INTO written FROM shuffle_write(query, target, 3, '{1}', if_exists => 'replace', workers => workers);
	EXECUTE format('SELECT count(*) FROM (((%1$s) EXCEPT ALL TABLE %2$I) UNION ALL (TABLE %2$I EXCEPT ALL (%1$s))) x', query, target)
		INTO different;
	RETURN NEXT;
END $$;
SELECT * FROM direct_check('SELECT * FROM parted', 'd_parted', 0);
SELECT * FROM direct_check('SELECT * FROM parted', 'd_parted', 2);
SELECT * FROM direct_check('SELECT c, a, b, c AS c2, a AS a2 FROM parted', 'd_order', 0);
SELECT * FROM direct_check('SELECT c, a + 1 AS a, b FROM parted', 'd_expression', 0);
SELECT * FROM direct_check('SELECT a, b::varchar AS b FROM parted UNION ALL SELECT id, s::varchar FROM (SELECT 1 AS id, ''x''::text AS s) q', 'd_union', 0);
SELECT * FROM direct_check('SELECT a % 10 AS k, count(*) AS n, min(b) AS b FROM parted GROUP BY 1', 'd_group', 0);
CREATE TABLE d_dropped (a int, gone int, b text NOT NULL, c numeric(10,2)) USING shuffle;
ALTER TABLE d_dropped DROP COLUMN gone;
SELECT sum(rows) FROM shuffle_write('SELECT a, b::varchar(9), c FROM parted WHERE b IS NOT NULL', 'd_dropped', if_exists => 'append');
SELECT count(*) FROM (SELECT * FROM parted WHERE b IS NOT NULL EXCEPT ALL TABLE d_dropped) x;
SELECT sum(rows) FROM shuffle_write('SELECT * FROM parted', 'd_dropped', if_exists => 'append');
DO $$ BEGIN
	EXECUTE 'CREATE TABLE direct_wide AS SELECT ' || (SELECT string_agg(format(
		'(i + %1$s)::int AS a%1$s, CASE WHEN i %% 3 > 0 THEN ''t'' || i END AS b%1$s', n), ', ')
		FROM generate_series(1, 60) n) || ' FROM generate_series(1, 500) i';
END $$;
SELECT * FROM direct_check('SELECT * FROM direct_wide', 'd_wide', 0);
SELECT * FROM direct_check('SELECT direct_wide.*, a1 + 1 AS e FROM direct_wide', 'd_wide_expression', 0);

-- every way a value lies in a stored row: all widths and alignments, short, long, compressed
-- and toasted values, NULLs, and attributes that older rows lack
CREATE TABLE lying (c "char", s int2, n name, t text, u uuid, b bool, i int, m macaddr, d float8,
	x bytea, at timetz, tid tid, r real, long text, l int8);
ALTER TABLE lying ALTER long SET STORAGE EXTERNAL;
INSERT INTO lying SELECT 'c', i, 'n' || i, repeat(i::text, i % 200), md5(i::text)::uuid, i % 2 = 0, i,
	'08:00:2b:01:02:03', i / 3.0, decode(repeat(md5(i::text), i % 40), 'hex'), '12:00+02',
	format('(%s,1)', i)::tid, i, repeat('long', CASE WHEN i % 50 = 0 THEN 3000 ELSE i % 3 END), -i
	FROM generate_series(1, 300) i;
INSERT INTO lying SELECT CASE WHEN i & 1 = 0 THEN 'c' END, CASE WHEN i & 2 = 0 THEN i END,
	CASE WHEN i & 4 = 0 THEN 'n' END, CASE WHEN i & 8 = 0 THEN repeat('t', i) END,
	CASE WHEN i & 16 = 0 THEN md5(i::text)::uuid END, CASE WHEN i & 32 = 0 THEN true END, i,
	CASE WHEN i & 64 = 0 THEN '08:00:2b:01:02:03'::macaddr END, CASE WHEN i & 128 = 0 THEN i END,
	CASE WHEN i & 256 = 0 THEN 'x'::bytea END, CASE WHEN i & 5 = 0 THEN '12:00+02'::timetz END,
	CASE WHEN i & 18 = 0 THEN '(7,1)'::tid END, CASE WHEN i & 33 = 0 THEN i END,
	CASE WHEN i & 3 = 0 THEN repeat('y', 9000) END, CASE WHEN i & 6 = 0 THEN i END
	FROM generate_series(0, 511) i;
ALTER TABLE lying ADD added int DEFAULT 7, ADD late text;
INSERT INTO lying SELECT * FROM lying WHERE i % 10 = 0;
UPDATE lying SET late = 'l' || i WHERE i % 20 = 0;
SELECT * FROM direct_check('SELECT * FROM lying', 'd_lying', 0);
SELECT * FROM direct_check('SELECT * FROM lying ORDER BY d', 'd_lying', 0);
SELECT * FROM direct_check('SELECT l, tid, s, t FROM lying', 'd_lying_some', 0);
SELECT * FROM direct_check('SELECT * FROM lying UNION ALL (SELECT * FROM lying ORDER BY l LIMIT 10)', 'd_lying_both', 0);

--
-- Advice on small blocks
--
RESET client_min_messages;
SELECT sum(rows) FROM shuffle_write('TABLE src', 'n_partitions', 200, '{id}', workers => 0);
SET shuffle_ext.block_rows = 10;
SELECT sum(rows) FROM shuffle_write('TABLE src', 'n_rows', 2, '{id}', workers => 0);
RESET shuffle_ext.block_rows;
SET shuffle_ext.block_bytes = '1kB';
SELECT sum(rows) FROM shuffle_write('SELECT id, repeat(''x'', 400) AS x FROM src', 'n_bytes', 2, '{id}', workers => 0);
RESET shuffle_ext.block_bytes;

\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA write_test CASCADE;
