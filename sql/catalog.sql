--
-- The catalog of segments and the views over it: shuffle_segments, shuffle_index,
-- shuffle_partitions.
--
CREATE TABLE catalog_source AS
	SELECT i AS id, repeat('x', i % 50) AS filler FROM generate_series(1, 100000) i;

-- Many runs, so that partitions have several extents.
SET shuffle_ext.block_rows = 100;
SET shuffle_ext.block_bytes = '16kB';
SET shuffle_ext.write_buffer_size = '64kB';
SET shuffle_ext.memory_limit = '2MB';
CREATE TEMP TABLE written AS
	SELECT 'log' AS layout, w.* FROM shuffle_write('TABLE catalog_source', 'catalog_log',
		partitions => 9, keys => '{id}', workers => 0) w
	UNION ALL
	SELECT 'partition_files', w.* FROM shuffle_write('TABLE catalog_source', 'catalog_files',
		partitions => 9, keys => '{id}', workers => 0, layout => 'partition_files') w;
CREATE TEMP VIEW tables AS
	SELECT 'log' AS layout, 'catalog_log'::regclass AS relation
	UNION ALL
	SELECT 'partition_files', 'catalog_files'::regclass;

-- What shuffle_write returned is what the view says.
SELECT t.layout, count(*) AS partitions, sum(p.rows) AS rows
	FROM tables t JOIN shuffle_partitions p USING (relation)
		JOIN written w ON w.layout = t.layout AND w.partition = p.partition
	WHERE (p.rows, p.bytes, p.raw_bytes, p.blocks, p.segments)
		= (w.rows, w.bytes, w.raw_bytes, w.blocks, w.segments)
	GROUP BY 1 ORDER BY 1;

-- The three views agree with each other and with the table.
SELECT t.layout, s.rows, s.rows = i.rows AS rows_ok, s.raw_bytes = i.raw_bytes AS raw_ok,
		s.blocks = i.blocks AS blocks_ok, s.extents = i.n AS extents_ok, i.n > 9 AS many,
		s.partitions, s.files, i.bytes < s.bytes AS bytes_ok
	FROM tables t, shuffle_segments s, (
		SELECT relation, count(*) AS n, sum(rows) AS rows, sum(raw_bytes) AS raw_bytes,
				sum(blocks) AS blocks, sum(bytes) AS bytes
			FROM shuffle_index GROUP BY 1) i
	WHERE s.relation = t.relation AND i.relation = t.relation ORDER BY 1;

-- Extents do not overlap, lie inside their file, and number all rows without gaps.
WITH e AS (
	SELECT t.layout, i.*, (pg_stat_file(i.path)).size AS file_size,
			lead(i.byte_offset) OVER (PARTITION BY i.path ORDER BY i.byte_offset) AS next_offset,
			lead(i.first_row) OVER (PARTITION BY i.relation, i.segment ORDER BY i.first_row) AS next_row
		FROM tables t JOIN shuffle_index i USING (relation))
SELECT layout, bool_and(byte_offset > 0) AS after_start,
		bool_and(byte_offset + bytes <= coalesce(next_offset, file_size)) AS inside,
		bool_and(first_row + rows = coalesce(next_row, 100000)) AS gapless,
		min(first_row), count(DISTINCT path) AS files, bool_and(blocks BETWEEN 1 AND rows) AS blocks_ok
	FROM e GROUP BY 1 ORDER BY 1;

-- Sizes on disk are those in the catalog.
SELECT t.layout, sum(f.size) = max(s.bytes) AS same
	FROM tables t JOIN shuffle_segments s USING (relation),
		LATERAL (SELECT (pg_stat_file(path)).size
			FROM (SELECT DISTINCT path FROM shuffle_index i WHERE i.relation = t.relation) p) f
	GROUP BY 1 ORDER BY 1;

-- Empty partitions are shown, before and after there are rows.
SELECT count(*) FROM shuffle_write('SELECT 1 AS a', 'catalog_small', partitions => 4, keys => '{a}');
SELECT count(*), count(*) FILTER (WHERE rows = 0 AND bytes = 0 AND segments = 0) AS empty,
		sum(rows) AS rows
	FROM shuffle_partitions WHERE relation = 'catalog_small'::regclass;
TRUNCATE catalog_small;
SELECT count(*), sum(rows) FROM shuffle_partitions WHERE relation = 'catalog_small'::regclass;
SELECT count(*) FROM shuffle_segments WHERE relation = 'catalog_small'::regclass;

-- A filter on the relation reads that relation's rows only.
CREATE FUNCTION catalog_plan(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line ~ 'Scan using|Index Cond' THEN RETURN NEXT btrim(line, ' ->'); END IF;
	END LOOP;
END $$;
SET enable_seqscan = off;
SELECT regexp_replace(line, '[0-9]{4,}', 'N') AS line FROM catalog_plan(
	'SELECT * FROM shuffle_index WHERE relation = ''catalog_log''::regclass AND partition = 3') line
	WHERE line !~ 'pg_database|datname';
SELECT regexp_replace(line, '[0-9]{4,}', 'N') AS line FROM catalog_plan(
	'SELECT * FROM shuffle_partitions WHERE relation = ''catalog_log''::regclass') line
	WHERE line !~ 'pg_am|amname';
RESET enable_seqscan;
DROP FUNCTION catalog_plan(text);

-- Every column says what it is.
SELECT c.relname, a.attname
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
	WHERE c.relname IN ('shuffle_segments', 'shuffle_index', 'shuffle_partitions')
		AND col_description(c.oid, a.attnum) IS NULL;

--
-- Only tables that the caller may read as a whole
--
CREATE ROLE regress_shuffle_reader;
CREATE VIEW catalog_shown AS
	SELECT 'segments' AS view, relation::text FROM shuffle_segments
	UNION SELECT 'index', relation::text FROM shuffle_index
	UNION SELECT 'partitions', relation::text FROM shuffle_partitions;
SELECT count(DISTINCT view), count(*) FROM catalog_shown WHERE relation LIKE 'catalog\_%';

SET ROLE regress_shuffle_reader;
SELECT relation FROM shuffle_segments;
SELECT relation FROM shuffle_index;
SELECT relation FROM shuffle_partitions;
SELECT * FROM shuffle_partition_totals('catalog_log');
SELECT count(*) FROM shuffle_segment;
SELECT count(*) FROM shuffle_sweep_state;
SELECT shuffle_sweep();
RESET ROLE;

GRANT SELECT (id) ON catalog_log TO regress_shuffle_reader;
SET ROLE regress_shuffle_reader;
SELECT relation FROM shuffle_index;
RESET ROLE;

GRANT SELECT ON catalog_log TO regress_shuffle_reader;
SET ROLE regress_shuffle_reader;
SELECT DISTINCT relation FROM shuffle_segments;
SELECT DISTINCT relation FROM shuffle_index;
SELECT DISTINCT relation FROM shuffle_partitions;
SELECT sum(rows) FROM shuffle_partition_totals('catalog_log');
-- A function of the user's cannot look behind the barrier.
CREATE FUNCTION pg_temp.leak(regclass) RETURNS bool LANGUAGE plpgsql COST 0.0001
	AS $$ BEGIN RAISE NOTICE 'saw %', $1; RETURN true; END $$;
SELECT relation FROM shuffle_segments WHERE pg_temp.leak(relation);
RESET ROLE;

ALTER TABLE catalog_log ENABLE ROW LEVEL SECURITY;
SET ROLE regress_shuffle_reader;
SELECT relation FROM shuffle_segments;
SELECT relation FROM shuffle_index;
SELECT relation FROM shuffle_partitions;
SELECT * FROM shuffle_partition_totals('catalog_log');
RESET ROLE;
ALTER TABLE catalog_log DISABLE ROW LEVEL SECURITY;

--
-- Rows of the catalog are the extension's own
--
SELECT count(*) AS before FROM shuffle_segment \gset
INSERT INTO shuffle_segment SELECT * FROM shuffle_segment;
UPDATE shuffle_segment SET name = 'gone';
DELETE FROM shuffle_segment;
COPY shuffle_segment FROM stdin;
1	2	3	4	00000000-0000-0000-0000-000000000000	0	0	0	0	0	0	2000-01-01	\N	log	pg_shuffle	x	x	\\x	\N
\.
SET session_replication_role = replica;
DELETE FROM shuffle_segment;
RESET session_replication_role;
TRUNCATE shuffle_segment;
SELECT count(*) = :before AS unchanged, count(*) FILTER (WHERE name = 'gone') AS changed
	FROM shuffle_segment;
SELECT extconfig IS NULL AS never_dumped FROM pg_extension WHERE extname = 'shuffle_ext';
SELECT attstorage FROM pg_attribute
	WHERE attrelid = 'shuffle_segment'::regclass AND attname = 'extents';

-- Stored extents are taken as they are or refused.
SELECT * FROM shuffle_expand_extents('');
SELECT * FROM shuffle_expand_extents('\x00');
SELECT count(*) FROM shuffle_expand_extents(decode(repeat('00', 96), 'hex'));

-- Every object and every column of the extension says what it is.
SELECT DISTINCT pg_describe_object(d.classid, d.objid, part.number) AS without_comment
	FROM pg_depend d
		LEFT JOIN pg_attribute a ON d.classid = 'pg_class'::regclass AND a.attrelid = d.objid
			AND a.attnum > 0 AND NOT a.attisdropped
			AND (SELECT relkind FROM pg_class c WHERE c.oid = d.objid) IN ('r', 'v'),
		LATERAL (VALUES (0), (a.attnum)) AS part(number)
	WHERE d.refclassid = 'pg_extension'::regclass
		AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'shuffle_ext')
		AND d.deptype = 'e'
		AND part.number IS NOT NULL
		AND d.classid IN ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_am'::regclass)
		AND NOT EXISTS (SELECT FROM pg_description c WHERE c.classoid = d.classid
			AND c.objoid = d.objid AND c.objsubid = part.number)
	ORDER BY 1;

-- Nothing is left over to sweep, and nothing that is needed is swept.
SELECT shuffle_sweep();
SELECT count(*), sum(id) FROM catalog_log;
SELECT count(*), sum(id) FROM catalog_files;

DROP VIEW catalog_shown, tables;
DROP TABLE catalog_source, catalog_log, catalog_files, catalog_small;
DROP OWNED BY regress_shuffle_reader;
DROP ROLE regress_shuffle_reader;

-- Objects of another version of the extension are noticed.
SELECT count(*) FROM shuffle_write('SELECT 1 AS a', 'catalog_other', partitions => 1);
BEGIN;
ALTER TABLE shuffle_segment RENAME COLUMN rows TO rows_stored;
SAVEPOINT renamed;
SELECT * FROM catalog_other;
ROLLBACK TO renamed;
INSERT INTO catalog_other VALUES (2);
ROLLBACK;
BEGIN;
ALTER TABLE shuffle_segment ADD COLUMN another int;
SELECT * FROM catalog_other;
ROLLBACK;
SELECT * FROM catalog_other;
CREATE FUNCTION catalog_verify(regclass, OUT file text, OUT partition int) RETURNS SETOF record
	LANGUAGE C AS '$libdir/shuffle_ext', 'shuffle_verify';
SELECT * FROM catalog_verify('catalog_other');
CREATE FUNCTION catalog_set(regclass, int) RETURNS text
	LANGUAGE C AS '$libdir/shuffle_ext', 'shuffle_set';
SELECT catalog_set('catalog_other', 3);
DROP FUNCTION catalog_verify, catalog_set;
DROP TABLE catalog_other;

-- No operator that somebody has put into the extension's schema before gets into the views:
-- it would run with the rights of whoever reads them.
BEGIN;
SET LOCAL client_min_messages = warning;
DROP EXTENSION shuffle_ext CASCADE;
CREATE SCHEMA hostile;
DO $$
DECLARE
	operator record;
	made int := 0;
BEGIN
	FOR operator IN
		WITH types AS (SELECT unnest('{bool,bytea,"char",name,text,int2,int4,int8,float8,numeric,oid,
				regclass,timestamptz,uuid,xid}'::regtype[]) AS type)
		SELECT name, l.type AS l, r.type AS r,
				CASE WHEN name ~ '[=<>]' THEN 'bool' WHEN name = '||' THEN 'text' ELSE 'numeric' END AS result
			FROM unnest('{||,=,<>,<,>,<=,>=,+,-,*,/}'::text[]) name, types l, types r
			WHERE NOT EXISTS (SELECT FROM pg_operator
				WHERE oprname = name AND oprleft = l.type AND oprright = r.type)
	LOOP
		made := made + 1;
		EXECUTE format('CREATE FUNCTION hostile.f%s(%s, %s) RETURNS %s LANGUAGE sql AS ''SELECT NULL::%4$s''',
			made, operator.l, operator.r, operator.result);
		EXECUTE format('CREATE OPERATOR hostile.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = hostile.f%s)',
			operator.name, operator.l, operator.r, made);
	END LOOP;
END $$;
CREATE EXTENSION shuffle_ext SCHEMA hostile;
SELECT c.relname, pg_describe_object(d.refclassid, d.refobjid, 0) AS uses
	FROM pg_depend d JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
		JOIN pg_class c ON c.oid = r.ev_class
	WHERE c.relnamespace = 'hostile'::regnamespace AND d.refclassid <> 'pg_class'::regclass
	ORDER BY 1, 2;
ROLLBACK;
