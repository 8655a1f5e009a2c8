--
-- shuffle_set: options of a table
--
CREATE TABLE s (id int, k text, day date) USING shuffle;
SELECT shuffle_set('s');
SELECT shuffle_set('s', keys => '{k}', partitions => 4);
SELECT shuffle_set('s', codec => 'zstd:3', types => 'native');
SELECT shuffle_set('s', keys => '{2,1}');
SELECT objsubid, label FROM pg_seclabel WHERE objoid = 's'::regclass AND provider = 'shuffle_ext' ORDER BY 1;
SELECT shuffle_set('s', method => 'range', keys => '{id}', bounds => '{10,20}');
SELECT objsubid, label FROM pg_seclabel WHERE objoid = 's'::regclass AND provider = 'shuffle_ext' ORDER BY 1;
SELECT shuffle_set('s', partitions => 8, method => 'round_robin', layout => 'partition_files');
SELECT shuffle_set('s', method => 'single', layout => 'log');
-- a table that was not partitioned gets the usual number
SET shuffle_ext.partitions = 16;
SELECT shuffle_set('s', keys => '{k}');
RESET shuffle_ext.partitions;

-- while there are rows, routing stays; everything else may change
INSERT INTO s SELECT i, 'k' || i, date '2020-01-01' + i FROM generate_series(1, 100) i;
SELECT shuffle_set('s', partitions => 8);
SELECT shuffle_set('s', keys => '{id}');
SELECT shuffle_set('s', method => 'single');
SELECT shuffle_set('s', partitions => 16, keys => '{k}', codec => 'lz4', types => 'arrow', layout => 'partition_files');
INSERT INTO s SELECT i, 'k' || i, date '2020-01-01' + i FROM generate_series(101, 200) i;
SELECT partitions, layout, rows FROM shuffle_segments WHERE relation = 's'::regclass ORDER BY segment;
SELECT count(*), sum(id), max(day) FROM s;
-- nor in the transaction that has truncated it, and given it rows again
BEGIN;
TRUNCATE s;
SELECT shuffle_set('s', partitions => 8);
INSERT INTO s VALUES (1, 'one', NULL);
SELECT partitions, rows FROM shuffle_segments WHERE relation = 's'::regclass;
SELECT shuffle_set('s', partitions => 16);
ROLLBACK;
SELECT count(DISTINCT partition) FROM shuffle_partitions WHERE relation = 's'::regclass;
-- a rewrite may change everything
SELECT sum(rows) FROM shuffle_write('TABLE s', 's', if_exists => 'replace', partitions => 4, keys => '{id}', layout => 'log');
SELECT shuffle_set('s');

-- bad input
SELECT shuffle_set(NULL);
SELECT shuffle_set('s', partitions => 0);
SELECT shuffle_set('s', keys => '{nothing}');
SELECT shuffle_set('s', keys => '{id,id}');
SELECT shuffle_set('s', keys => '{{id}}');
SELECT shuffle_set('s', keys => '{NULL}');
SELECT shuffle_set('s', method => 'magic');
SELECT shuffle_set('s', method => 'range', partitions => 3, keys => '{id}');
SELECT shuffle_set('s', method => 'range', keys => '{id}', bounds => '{20,10}');
SELECT shuffle_set('s', codec => 'gzip');
SELECT shuffle_set('s', types => 'parquet');
SELECT shuffle_set('s', unrepresentable => 'zero');
SELECT shuffle_set('s', hash => 'spark');
CREATE TABLE nohash (p point) USING shuffle;
SELECT shuffle_set('nohash', keys => '{p}');
CREATE VIEW v AS SELECT 1 AS one;
SELECT shuffle_set('v', codec => 'lz4');
CREATE ROLE regress_set;
GRANT ALL ON s TO regress_set;
SET ROLE regress_set;
SELECT shuffle_set('s', codec => 'none');
RESET ROLE;
BEGIN READ ONLY;
SELECT shuffle_set('s', codec => 'none');
ROLLBACK;
BEGIN;
TRUNCATE s;
INSERT INTO nohash SELECT point(1, 1) FROM (SELECT shuffle_set('nohash', partitions => 2, method => 'round_robin')) x;
ROLLBACK;
DROP OWNED BY regress_set;
DROP ROLE regress_set;

--
-- columns that are keys
--
CREATE TABLE hashed (k text) PARTITION BY HASH (k);
CREATE TABLE renamed (id int, k text) USING shuffle;
SELECT shuffle_set('renamed', partitions => 4, keys => '{k}');
INSERT INTO renamed SELECT i, 'v' || i FROM generate_series(1, 50) i;
ALTER TABLE renamed RENAME COLUMN k TO key;
INSERT INTO renamed SELECT i, 'v' || i FROM generate_series(51, 100) i;
SELECT count(*) FROM generate_series(0, 3) p, shuffle_read(NULL::renamed, p) r
	WHERE NOT satisfies_hash_partition('hashed'::regclass, 4, p, key);

-- a key that is dropped: reading goes on, writing needs a new one, maintenance keeps partitions
CREATE TABLE dropped (id int, k int) USING shuffle;
SELECT shuffle_set('dropped', partitions => 4, keys => '{k}');
INSERT INTO dropped SELECT i, i FROM generate_series(1, 100) i;
INSERT INTO dropped SELECT i, i FROM generate_series(101, 200) i;
CREATE TEMP TABLE places AS SELECT p, (shuffle_read(NULL::dropped, p)).id FROM generate_series(0, 3) p;
ALTER TABLE dropped DROP COLUMN k;
SELECT count(*), sum(id) FROM dropped;
INSERT INTO dropped VALUES (1);
SELECT segments_after, rows FROM shuffle_compact('dropped');
SELECT count(*) FROM (SELECT p, (shuffle_read(NULL::dropped, p)).id FROM generate_series(0, 3) p EXCEPT TABLE places) x;
VACUUM FULL dropped;
SELECT count(*) FROM (SELECT p, (shuffle_read(NULL::dropped, p)).id FROM generate_series(0, 3) p EXCEPT TABLE places) x;
SELECT shuffle_set('dropped', keys => '{id}');
SELECT sum(rows) FROM shuffle_write('TABLE dropped', 'dropped', keys => '{id}', if_exists => 'replace');
INSERT INTO dropped VALUES (201);
SELECT shuffle_set('dropped');

-- a key that changes its type: rows are routed again, or it is refused
CREATE TABLE typed (id int, k varchar(10)) USING shuffle;
SELECT shuffle_set('typed', partitions => 4, keys => '{k}');
INSERT INTO typed SELECT i, i FROM generate_series(1, 100) i;
ALTER TABLE typed ALTER COLUMN k TYPE text;
INSERT INTO typed SELECT i, i FROM generate_series(101, 200) i;
SELECT count(*) FROM generate_series(0, 3) p, shuffle_read(NULL::typed, p)
	WHERE NOT satisfies_hash_partition('hashed'::regclass, 4, p, k);
ALTER TABLE typed ALTER COLUMN k TYPE int USING k::int;
CREATE TABLE hashed_int (k int) PARTITION BY HASH (k);
SELECT count(*) FROM generate_series(0, 3) p, shuffle_read(NULL::typed, p)
	WHERE NOT satisfies_hash_partition('hashed_int'::regclass, 4, p, k);
SELECT count(*), sum(k) FROM typed;
ALTER TABLE typed ALTER COLUMN k TYPE point USING point(k, k);
BEGIN;
ALTER TABLE typed ALTER COLUMN id TYPE oid;
ROLLBACK;
-- no rewrite, but int and oid have the same hash
INSERT INTO typed VALUES (0, -1);
ALTER TABLE typed ALTER COLUMN k TYPE oid;
INSERT INTO typed SELECT i, i FROM generate_series(201, 300) i;
CREATE TABLE hashed_oid (k oid) PARTITION BY HASH (k);
SELECT count(*) FROM generate_series(0, 3) p, shuffle_read(NULL::typed, p)
	WHERE NOT satisfies_hash_partition('hashed_oid'::regclass, 4, p, k);
ALTER TABLE typed ALTER COLUMN k TYPE int;
SELECT count(*), sum(k) FROM typed;
ALTER TABLE typed ALTER COLUMN k TYPE text USING (k || '')::text;
ALTER TABLE typed ALTER COLUMN k TYPE text COLLATE "C";
ALTER TABLE typed ALTER COLUMN k TYPE text COLLATE "C" USING k || '';
SELECT count(*) FROM generate_series(0, 3) p, shuffle_read(NULL::typed, p)
	WHERE NOT satisfies_hash_partition('hashed'::regclass, 4, p, k);
BEGIN;
TRUNCATE typed;
ALTER TABLE typed ALTER COLUMN k TYPE text COLLATE "default";
COMMIT;

-- range bounds follow the type
CREATE TABLE ranged (k int) USING shuffle;
SELECT shuffle_set('ranged', method => 'range', keys => '{k}', bounds => '{10,20}');
INSERT INTO ranged SELECT generate_series(1, 30);
ALTER TABLE ranged ALTER COLUMN k TYPE oid;
DO $$ BEGIN ALTER TABLE ranged ALTER COLUMN k TYPE oid; END $$;
ALTER TABLE ranged ALTER COLUMN k TYPE oid USING (k || '')::oid;
ALTER TABLE ranged ALTER COLUMN k TYPE bigint;
SELECT p, count(*), min(k), max(k) FROM generate_series(0, 2) p, shuffle_read(NULL::ranged, p) GROUP BY p ORDER BY p;
ALTER TABLE ranged ALTER COLUMN k TYPE date USING date '2020-01-01' + k::int;

-- materialized views
CREATE TABLE source AS SELECT i AS k FROM generate_series(1, 100) i;
CREATE MATERIALIZED VIEW m USING shuffle AS SELECT k FROM source;
SELECT shuffle_set('m', partitions => 4, keys => '{k}');
REFRESH MATERIALIZED VIEW m WITH NO DATA;
SELECT shuffle_set('m', partitions => 4, keys => '{k}');
REFRESH MATERIALIZED VIEW m;
SELECT count(*) FROM generate_series(0, 3) p, shuffle_read(NULL::m, p)
	WHERE NOT satisfies_hash_partition('hashed_int'::regclass, 4, p, k);
INSERT INTO source VALUES (101);
REFRESH MATERIALIZED VIEW m;
SELECT count(*) FROM generate_series(0, 3) p, shuffle_read(NULL::m, p)
	WHERE satisfies_hash_partition('hashed_int'::regclass, 4, p, k);
ALTER MATERIALIZED VIEW m SET ACCESS METHOD heap;
SELECT shuffle_set('m', partitions => 5);
ALTER MATERIALIZED VIEW m SET ACCESS METHOD shuffle;
SELECT count(*), sum(rows) FROM shuffle_partitions WHERE relation = 'm'::regclass;
DROP MATERIALIZED VIEW m;

DROP VIEW v;
DROP TABLE source, s, nohash, hashed, hashed_int, renamed, dropped, places, typed, ranged;
