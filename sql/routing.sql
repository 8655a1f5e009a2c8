-- Which partition a row goes to.
SET client_min_messages = warning;

CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);

--
-- hash: partition p holds what satisfies_hash_partition() puts there
--
CREATE FUNCTION hash_check(type text, expr text, n int DEFAULT 7,
						   OUT rows bigint, OUT lost bigint, OUT misplaced bigint, OUT spread bool)
LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE h_source (i int, k %s)', type);
	EXECUTE format('INSERT INTO h_source SELECT i, CASE WHEN i %% 17 <> 0 THEN (%s) END
					FROM generate_series(1, 500) i', expr);
	EXECUTE format('CREATE TABLE h_parent (k %s) PARTITION BY HASH (k)', type);
	PERFORM shuffle_write('SELECT * FROM h_source', 'h_target', partitions => n, keys => '{k}');
	EXECUTE format('
		SELECT count(t.i), count(*) FILTER (WHERE t.i IS NULL),
			count(*) FILTER (WHERE NOT satisfies_hash_partition(%s::regclass, %s, p, s.k)),
			count(DISTINCT p) > 1
		FROM h_source s LEFT JOIN
			(SELECT p, i FROM generate_series(0, %s - 1) p, shuffle_read(NULL::h_target, p)) t USING (i)',
		quote_literal('h_parent'), n, n)
	INTO rows, lost, misplaced, spread;
	DROP TABLE h_source, h_parent, h_target;
END $$;

SELECT type, h.*
FROM (VALUES
	('bool', 'i % 2 = 0'),
	('int2', '(i - 250)::int2'),
	('int4', '(i - 250) * 1000003'),
	('int8', '(i - 250) * 100000000003'),
	('oid', 'i::oid'),
	('float4', '(i - 250) / 3.0'),
	('float8', 'CASE i WHEN 1 THEN float8 ''NaN'' WHEN 2 THEN -0.0 WHEN 3 THEN 0.0 ELSE i / 3.0 END'),
	('numeric', '(i - 250) / 7.0'),
	('numeric(10,2)', '(i - 250) / 7.0'),
	('text', 'repeat(i::text, i % 9)'),
	('text', 'repeat(i::text, 3000)'),
	('text', '(SELECT string_agg(md5((i * j)::text), '''') FROM generate_series(1, 300) j)'),
	('text COLLATE "C"', 'i::text'),
	('varchar(20)', '''v'' || i'),
	('char(10)', '''v'' || i'),
	('"char"', 'chr(65 + i % 26)::"char"'),
	('name', '(''n'' || i)::name'),
	('bytea', 'decode(md5(i::text), ''hex'')'),
	('uuid', 'md5(i::text)::uuid'),
	('date', 'date ''1999-06-01'' + i'),
	('time', 'time ''00:00'' + i * interval ''1 minute'''),
	('timetz', 'timetz ''00:00+02'' + i * interval ''1 minute'''),
	('timestamp', 'timestamp ''1999-12-25'' + i * interval ''1 hour 1 microsecond'''),
	('timestamptz', 'timestamptz ''1999-12-25 00:00+00'' + i * interval ''1 hour 1 microsecond'''),
	('interval', 'i * interval ''1 hour 1 month'''),
	('inet', '(''10.0.'' || i % 256 || ''.1'')::inet'),
	('macaddr', '(''08:00:2b:01:02:'' || to_hex(i % 256))::macaddr'),
	('pg_lsn', '(''0/'' || i)::pg_lsn'),
	('jsonb', 'jsonb_build_object(''a'', i)'),
	('mood', '(enum_range(NULL::mood))[i % 3 + 1]'),
	('pair', 'ROW(i, i::text)::pair'),
	('positive', 'i'),
	('int[]', 'ARRAY[i, NULL, i + 1]'),
	('text[]', 'ARRAY[i::text, ''x'']'),
	('int4range', 'int4range(i, i + 5)')) v(type, expr), hash_check(type, expr) h;
-- other numbers of partitions
SELECT n, h.rows, h.lost, h.misplaced FROM unnest('{1, 2, 64, 1000}'::int[]) n, hash_check('int8', 'i * 77', n) h;

-- several keys, in an order of their own, over a table with a dropped column
CREATE TABLE source (gone text, a int, b date, c text, d int8);
INSERT INTO source SELECT 'x', nullif(i % 50, 3), date '2020-01-01' + nullif(i % 77, 5), nullif('c' || i % 9, 'c4'), i
FROM generate_series(1, 3000) i;
ALTER TABLE source DROP COLUMN gone;
CREATE TABLE parent (d int8, a int, c text, b date) PARTITION BY HASH (d, a, c, b);
SELECT count(*) AS partitions, sum(rows) AS rows
FROM shuffle_write('SELECT * FROM source', 'target', partitions => 13, keys => '{d,1,c,b}');
SELECT count(*) AS rows,
	count(*) FILTER (WHERE NOT satisfies_hash_partition('parent'::regclass, 13, p, d, a, c, b)) AS misplaced
FROM generate_series(0, 12) p, shuffle_read(NULL::target, p);
DROP TABLE target, parent;

--
-- range: against width_bucket()
--
CREATE FUNCTION range_check(key text, type text, bounds text[], OUT rows bigint, OUT misplaced bigint)
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM shuffle_write(format('SELECT i, %s AS k FROM generate_series(1, 1000) i', key), 'r_target',
						  keys => '{k}', method => 'range', bounds => bounds);
	EXECUTE format('
		SELECT count(*), count(*) FILTER (WHERE p <> coalesce(width_bucket(k, %L::%s[]), %s))
		FROM generate_series(0, %s) p, shuffle_read(NULL::r_target, p)',
		bounds, type, cardinality(bounds), cardinality(bounds))
	INTO rows, misplaced;
	DROP TABLE r_target;
END $$;

SELECT type, r.*
FROM (VALUES
	('int2', 'nullif(i % 100, 7)::int2', '{-5,0,10,99}'),
	('int4', 'nullif(i % 100, 7)', '{0,10,11,45}'),
	('int8', '(i - 500) * 10000000000', '{-1000000000000,0,1}'),
	('float8', 'CASE i WHEN 1 THEN float8 ''NaN'' ELSE i - 500 END', '{-Infinity,-3.5,0,NaN}'),
	('numeric', 'i / 10.0', '{1.5,1.50001,70}'),
	('date', 'date ''2020-01-01'' + i', '{2020-02-01,2021-01-01}'),
	('timestamp', 'timestamp ''2020-01-01'' + i * interval ''1 hour''', '{2020-01-02,2020-01-02 00:00:00.000001}'),
	('text', 'nullif(''k'' || i, ''k5'')', '{"",k2,"k2 ","k9,\"x"}'),
	('char(5)', '(''k'' || i)::char(5)', '{k2,k9}'),
	('bytea', 'decode(md5(i::text), ''hex'')', '{"\\x40","\\x80"}'),
	('uuid', 'md5(i::text)::uuid', '{40000000-0000-0000-0000-000000000000}'),
	('interval', 'i * interval ''1 day''', '{"10 days","1 mon","2 mons"}'),
	('mood', '(enum_range(NULL::mood))[i % 3 + 1]', '{ok,happy}'),
	('positive', 'i::positive', '{5,50}'),
	('inet', '(''10.0.'' || i % 256 || ''.1'')::inet', '{10.0.100.0,10.0.200.0/24}')
	) v(type, key, bounds), range_check(key, type, bounds::text[]) r;
-- keys without width_bucket
SELECT sum(rows) AS rows FROM shuffle_write('SELECT i, ROW(i % 4, ''x'')::pair AS k, ARRAY[i % 10, i] AS a FROM generate_series(1, 1000) i', 'target',
	keys => '{k}', method => 'range', bounds => '{"(1,x)","(3,w)"}');
SELECT p, array_agg(DISTINCT k ORDER BY k), count(*) FROM generate_series(0, 2) p, shuffle_read(NULL::target, p) GROUP BY p ORDER BY p;
SELECT sum(rows) AS rows FROM shuffle_write('TABLE target', 'target', if_exists => 'replace', keys => '{a}', bounds => '{"{3,100}","{5}"}');
SELECT p, min(a), max(a), count(*) FROM generate_series(0, 2) p, shuffle_read(NULL::target, p) GROUP BY p ORDER BY p;
DROP TABLE target;
-- several keys: NULL sorts last, and the last partition takes a NULL first key
SELECT sum(rows) AS rows FROM shuffle_write('SELECT * FROM source', 'target', keys => '{a,c}', method => 'range',
	bounds => '{"(10,c5)","(30,)"}');
SELECT count(*) AS rows, count(*) FILTER (WHERE p <> CASE
	WHEN a IS NULL THEN 2 WHEN a < 10 OR a = 10 AND c < 'c5' THEN 0
	WHEN a < 30 OR a = 30 AND c IS NOT NULL THEN 1 ELSE 2 END) AS misplaced
FROM generate_series(0, 2) p, shuffle_read(NULL::target, p);
DROP TABLE target;
-- bounds are read as the session writes them, and stored so that every session reads them
SET datestyle = 'German';
SET timezone = 'America/New_York';
SELECT sum(rows) AS rows FROM shuffle_write('SELECT timestamptz ''01.02.2020 00:00'' + i * interval ''1 hour'' AS k FROM generate_series(-50, 49) i', 'target',
	keys => '{k}', method => 'range', bounds => '{01.02.2020 00:00}');
RESET datestyle;
RESET timezone;
SELECT label FROM pg_seclabels WHERE objname = 'target' AND provider = 'shuffle_ext';
SELECT partition, rows FROM shuffle_write('SELECT timestamptz ''2020-02-01 05:00+00'' + i * interval ''1 hour'' FROM generate_series(-5, 9) i', 'target', if_exists => 'append');
DROP TABLE target;

--
-- estimated bounds
--
CREATE FUNCTION spread(query text, key text, n int, OUT used bigint, OUT balanced bool)
LANGUAGE sql AS $$
	SELECT count(*) FILTER (WHERE rows > 0), max(rows) < 1.5 * sum(rows) / n
	FROM shuffle_write(query, 'target', partitions => n, keys => ARRAY[key], method => 'range') $$;
CREATE TABLE skewed AS
SELECT i, (random() ^ 4 * 100000)::int AS steep, i % 3 AS few, CASE WHEN i % 2 = 0 THEN i END AS half, md5(i::text) AS t
FROM generate_series(1, 20000) i;
-- from a sample
SELECT * FROM spread('SELECT * FROM skewed', 'steep', 20); DROP TABLE target;
SELECT * FROM spread('SELECT * FROM skewed WHERE i > 10000 ORDER BY t', 't', 20); DROP TABLE target;
-- from statistics: the same property
ALTER TABLE skewed ALTER t SET STATISTICS 500, ALTER steep SET STATISTICS 500;
SELECT pg_stat_force_next_flush();	-- of the rows just written, or they count as written after ANALYZE
ANALYZE skewed;
SELECT * FROM spread('SELECT * FROM skewed', 'steep', 20); DROP TABLE target;
SELECT * FROM spread('TABLE skewed', 't', 20); DROP TABLE target;
-- a sample runs the query a second time, statistics do not; they serve whole tables only,
-- with a histogram finer than the partitions, and while most of the table is as it was
CREATE SEQUENCE calls;
CREATE FUNCTION calls(query text, n int, OUT runs numeric) LANGUAGE plpgsql AS $$
DECLARE
	rows bigint;
BEGIN
	PERFORM setval('calls', 1, false);
	SELECT sum(w.rows) INTO rows
	FROM shuffle_write(query, 'target', partitions => n, keys => '{t}', method => 'range') w;
	runs := round((nextval('calls') - 1)::numeric / rows, 1);
	DROP TABLE target;
END $$;
SELECT calls('SELECT t, nextval(''calls'') FROM skewed', 20);
SELECT calls('SELECT t, nextval(''calls'') FROM skewed', 200);
SELECT calls('SELECT upper(t) AS t, nextval(''calls'') FROM skewed', 20);
SELECT calls('SELECT t, nextval(''calls'') FROM skewed WHERE i > 0', 20);
BEGIN;
INSERT INTO skewed SELECT i, 0, 0, 0, md5(i::text) FROM generate_series(20001, 25000) i;
SELECT calls('SELECT t, nextval(''calls'') FROM skewed', 20);
ROLLBACK;
DROP SEQUENCE calls;
-- fewer values than partitions; half of the rows NULL; no rows
SELECT partition, rows FROM shuffle_write('SELECT * FROM skewed', 'target', partitions => 5, keys => '{few}', method => 'range');
DROP TABLE target;
SELECT min(rows) > 0 AS used, max(rows) = 10000 AS nulls_alone FROM shuffle_write('SELECT * FROM skewed', 'target', partitions => 11, keys => '{half}', method => 'range');
DROP TABLE target;
SELECT partition, rows FROM shuffle_write('SELECT 1 AS k WHERE false', 'target', partitions => 2, keys => '{k}', method => 'range');
DROP TABLE target;
-- statistics of rows that row security hides are not used
CREATE ROLE regress_shuffle_reader;
GRANT SELECT ON skewed TO regress_shuffle_reader;
ALTER TABLE skewed ENABLE ROW LEVEL SECURITY;
CREATE POLICY small ON skewed USING (i <= 100);
GRANT CREATE ON SCHEMA public TO regress_shuffle_reader;
SET ROLE regress_shuffle_reader;
SELECT partition, rows FROM shuffle_write('SELECT i FROM skewed', 'target', partitions => 4, keys => '{i}', method => 'range');
DROP TABLE target;
RESET ROLE;
REVOKE CREATE ON SCHEMA public FROM regress_shuffle_reader;
DROP TABLE skewed;
DROP ROLE regress_shuffle_reader;

-- keys of all characters, several of them; what is appended goes where the first rows went
CREATE FUNCTION odd_text(i int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT E'a''b"c\\d\n,{}()=' || i $$;
SELECT partition, rows FROM shuffle_write('SELECT i, odd_text(i) AS t FROM generate_series(1, 90) i', 'target', partitions => 3, keys => '{t,i}', method => 'range');
SELECT partition, rows FROM shuffle_write('SELECT i, odd_text(i) AS t FROM generate_series(1, 90) i', 'target', if_exists => 'append');
SELECT count(*) FROM (SELECT i FROM generate_series(0, 2) p, shuffle_read(NULL::target, p) GROUP BY i HAVING count(DISTINCT p) > 1) d;
DROP TABLE target;
DROP FUNCTION odd_text;
-- keys that do not all fit into memory
SET shuffle_ext.memory_limit = '8MB';
SELECT count(*), max(rows) < 1500 AS balanced FROM shuffle_write('SELECT repeat(md5(i::text), 100) AS t FROM generate_series(1, 10000) i', 'target', partitions => 10, keys => '{t}', method => 'range');
RESET shuffle_ext.memory_limit;
DROP TABLE target;
-- queries whose rows hang on their order or on more than the keys
SELECT count(*), min(rows), max(rows) FROM shuffle_write('SELECT DISTINCT ON (a) a, d FROM source ORDER BY a, d DESC', 'target', partitions => 5, keys => '{d}', method => 'range');
DROP TABLE target;
SELECT count(*), min(rows), max(rows) FROM shuffle_write('SELECT d FROM source ORDER BY a, d LIMIT 1000', 'target', partitions => 5, keys => '{1}', method => 'range');
DROP TABLE target;
SELECT count(*), min(rows), max(rows) FROM shuffle_write('WITH x AS (SELECT d FROM source UNION ALL SELECT -d FROM source) SELECT d, count(*) FROM x GROUP BY d HAVING count(*) > 0', 'target', partitions => 5, keys => '{d}', method => 'range');
DROP TABLE target;

--
-- functions of a key's or a column's type that are not parallel safe keep the plan serial
--
CREATE TYPE shout;
CREATE FUNCTION shout_in(cstring) RETURNS shout AS 'textin' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION shout_out(shout) RETURNS cstring AS 'textout' LANGUAGE internal IMMUTABLE STRICT;
CREATE TYPE shout (INPUT = shout_in, OUTPUT = shout_out, LIKE = text);
CREATE FUNCTION shout_eq(shout, shout) RETURNS bool AS 'byteaeq' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION shout_hash(shout) RETURNS int4 AS 'hashvarlena' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION shout_hash_extended(shout, int8) RETURNS int8 AS 'hashvarlenaextended' LANGUAGE internal IMMUTABLE STRICT;
CREATE OPERATOR = (LEFTARG = shout, RIGHTARG = shout, FUNCTION = shout_eq, HASHES);
CREATE OPERATOR CLASS shout_ops DEFAULT FOR TYPE shout USING hash AS
	OPERATOR 1 =, FUNCTION 1 shout_hash(shout), FUNCTION 2 shout_hash_extended(shout, int8);
CREATE TABLE shouts AS SELECT i, i::text::shout AS s, ARRAY[i::text::shout] AS a FROM generate_series(1, 20000) i;
ANALYZE shouts;
CREATE FUNCTION process() RETURNS int LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$ BEGIN RETURN pg_backend_pid(); END $$;
CREATE FUNCTION in_workers(columns text, key text, types text, OUT parallel bool) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM shuffle_write(format('SELECT %s, process() FROM shouts', columns), 'target', 2, ARRAY[key],
						  types => types, workers => 2);
	SELECT bool_and(process <> pg_backend_pid()) INTO parallel FROM target;
	DROP TABLE target;
END $$;
SET parallel_leader_participation = off;
SELECT in_workers('i', 'i', 'arrow');
SELECT in_workers('i, s', 'i', 'arrow');
SELECT in_workers('i, a', 'i', 'arrow');
SELECT in_workers('i, s', 'i', 'native');
SELECT in_workers('i, s', 's', 'native');
SELECT in_workers('i, a', 'a', 'native');
ALTER FUNCTION shout_out PARALLEL SAFE;
ALTER FUNCTION shout_hash_extended PARALLEL SAFE;
SELECT in_workers('i, s, a', 'a', 'arrow');
RESET parallel_leader_participation;
DROP TABLE shouts;
DROP TYPE shout CASCADE;
DROP FUNCTION in_workers, process;

--
-- round_robin and single
--
SET max_parallel_workers_per_gather = 0;
SELECT partition, rows FROM shuffle_write('SELECT * FROM source', 'target', partitions => 7);
DROP TABLE target;
SELECT partition, rows FROM shuffle_write('SELECT * FROM source', 'target', method => 'single');
DROP TABLE target;

--
-- a key that is stored as NULL for want of an Arrow form is where NULLs are
--
CREATE TABLE infinite AS
	SELECT i, CASE i % 5 WHEN 0 THEN 'infinity' WHEN 1 THEN NULL ELSE date '2024-01-01' + i END AS d,
		CASE i % 7 WHEN 0 THEN 'NaN' ELSE i / 10.0 END::numeric(10,1) AS n, ARRAY[date '2024-01-01' + i] AS a
	FROM generate_series(1, 210) i;
CREATE TABLE infinite_parent (d date, n numeric(10,1)) PARTITION BY HASH (d, n);
SELECT sum(rows) FROM shuffle_write('SELECT * FROM infinite', 'finite', partitions => 6, keys => '{d,n}',
	unrepresentable => 'null', workers => 0);
INSERT INTO finite SELECT * FROM infinite;
SELECT count(*), count(d), count(n), count(*) FILTER (WHERE satisfies_hash_partition('infinite_parent'::regclass, 6, p, d, n))
	FROM generate_series(0, 5) p, shuffle_read(NULL::finite, p);
SELECT count(*) FROM finite WHERE d IS NULL AND n IS NULL;
SELECT sum(rows) FROM shuffle_write('SELECT * FROM infinite', 'finite', partitions => 3, keys => '{d}', method => 'range',
	bounds => '{2024-03-01,2024-05-01}', unrepresentable => 'null', if_exists => 'replace');
SELECT p, count(*), count(d), min(d), max(d) FROM generate_series(0, 2) p, shuffle_read(NULL::finite, p) GROUP BY p ORDER BY p;
SELECT sum(rows) FROM shuffle_write('SELECT * FROM infinite', 'finite', partitions => 3, keys => '{a}',
	unrepresentable => 'null', if_exists => 'replace');
INSERT INTO finite (i, d, a) VALUES (0, 'infinity', '{2024-01-01}');
INSERT INTO finite (a) VALUES ('{2024-01-01,infinity}');
SELECT count(*) FROM finite;
DROP TABLE infinite, infinite_parent, finite;

--
-- bad input leaves nothing behind
--
CREATE TABLE odd (j json, p point, a json[], t text, i int);
SELECT shuffle_write('SELECT * FROM odd', 'bad', partitions => 0);
SELECT shuffle_write('SELECT * FROM odd', 'bad', partitions => -1);
SELECT shuffle_write('SELECT * FROM odd', 'bad', partitions => 1000001);
SELECT shuffle_write('SELECT * FROM odd', 'bad', partitions => 4097, layout => 'partition_files');
SELECT shuffle_write('SELECT * FROM odd', 'bad', partitions => 2, method => 'single');
SELECT shuffle_write('SELECT * FROM odd', 'bad', keys => '{x}');
SELECT shuffle_write('SELECT * FROM odd', 'bad', keys => '{0}');
SELECT shuffle_write('SELECT * FROM odd', 'bad', keys => '{6}');
SELECT shuffle_write('SELECT * FROM odd', 'bad', keys => '{i,5}');
SELECT shuffle_write('SELECT * FROM odd', 'bad', keys => '{j}');
SELECT shuffle_write('SELECT * FROM odd', 'bad', keys => '{a}');
SELECT shuffle_write('SELECT * FROM odd', 'bad', keys => '{p}', method => 'range');
SELECT shuffle_write('SELECT * FROM odd', 'bad', method => 'hash');
SELECT shuffle_write('SELECT * FROM odd', 'bad', method => 'range');
SELECT shuffle_write('SELECT * FROM odd', 'bad', method => 'round_robin', keys => '{i}');
SELECT shuffle_write('SELECT * FROM odd', 'bad', method => 'modulo', keys => '{i}');
SELECT shuffle_write('SELECT * FROM odd', 'bad', hash => 'murmur3', keys => '{i}');
SELECT shuffle_write('SELECT * FROM odd', 'bad', layout => 'rows');
SELECT shuffle_write('SELECT * FROM odd', 'bad', types => 'parquet');
SELECT shuffle_write('SELECT * FROM odd', 'bad', unrepresentable => 'skip');
SELECT shuffle_write('SELECT * FROM odd', 'bad', codec => 'snappy');
SELECT shuffle_write('SELECT * FROM odd', 'bad', codec => 'lz4:13');
SELECT shuffle_write('SELECT * FROM odd', 'bad', codec => 'zstd:23');
SELECT shuffle_write('SELECT * FROM odd', 'bad', keys => '{i}', bounds => '{1,2}');
SELECT shuffle_write('SELECT * FROM odd', 'bad', keys => '{i}', method => 'range', bounds => '{1,2}', partitions => 2);
SELECT shuffle_write('SELECT * FROM odd', 'bad', keys => '{i}', method => 'range', bounds => '{1,3,2}');
SELECT shuffle_write('SELECT * FROM odd', 'bad', keys => '{i}', method => 'range', bounds => '{1,2,2}');
SELECT shuffle_write('SELECT * FROM odd', 'bad', keys => '{i}', method => 'range', bounds => '{1,two}');
SELECT shuffle_write('SELECT * FROM odd', 'bad', keys => '{i}', method => 'range', bounds => '{1,NULL}');
SELECT shuffle_write('SELECT * FROM odd', 'bad', keys => '{i,t}', method => 'range', bounds => '{"(1,a)","(2)"}');
SELECT shuffle_write('SELECT * FROM odd', 'bad', keys => '{i,t}', method => 'range', bounds => '{"(,a)","(2,b)"}');
SELECT count(*) FROM pg_class WHERE relname = 'bad';

-- A bound whose text its type does not read any more is told, with the way out.
CREATE TABLE moods USING shuffle AS SELECT mood FROM unnest(enum_range(NULL::mood)) mood;
SELECT sum(rows) FROM shuffle_write('TABLE moods', 'moods', partitions => 2, keys => '{mood}', method => 'range',
	bounds => ARRAY[(enum_range(NULL::mood))[2]::text], if_exists => 'replace');
SELECT format('ALTER TYPE mood RENAME VALUE %L TO %L', (enum_range(NULL::mood))[2], 'renamed') \gexec
INSERT INTO moods VALUES ('renamed');
SELECT sum(rows) FROM shuffle_write('TABLE moods', 'moods', bounds => '{renamed}', if_exists => 'replace');
INSERT INTO moods VALUES ('renamed');
SELECT partition, rows FROM shuffle_partitions WHERE relation = 'moods'::regclass ORDER BY 1;
DROP TABLE moods;

DROP TABLE odd, source;
DROP FUNCTION hash_check, range_check, spread, calls;
DROP DOMAIN positive;
DROP TYPE mood, pair;
