-- Conditions on the keys: only the partitions that they leave are read.
-- What is right is what the heap table says.
CREATE SCHEMA prune;
SET search_path = prune, public;
SET max_parallel_workers_per_gather = 0;

CREATE TABLE h AS
  SELECT i AS id, i::bigint * 1000000007 AS big, (i % 300)::smallint AS small, 'k' || i % 500 AS t,
    date '2024-01-01' + i % 400 AS d, md5(i::text) AS pad
  FROM generate_series(1, 20000) i;
INSERT INTO h VALUES (NULL, NULL, NULL, NULL, NULL, 'NULL');
ANALYZE h;
CREATE FUNCTION pruned(source text, keys text[], how text, parts int = 40) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DROP TABLE IF EXISTS s;
  PERFORM shuffle_write('SELECT * FROM ' || source, 's', partitions => parts, keys => keys, method => how, workers => 0);
  ANALYZE s;
END$$;
SET client_min_messages = warning;

-- Partitions that a query on s reads, and whether it has the rows that the heap table has.
CREATE FUNCTION partitions_read(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE plan jsonb;
BEGIN
  EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT json) ' || query INTO plan;
  RETURN coalesce((SELECT string_agg(x #>> '{}', ',') FROM jsonb_path_query(plan, 'strict $.**."Partitions Read"') x), 'all');
END$$;
CREATE FUNCTION try(condition text, source text = 'h', OUT partitions text, OUT right_rows boolean, OUT rows bigint)
LANGUAGE plpgsql AS $$
BEGIN
  partitions := partitions_read('SELECT * FROM s WHERE ' || condition);
  EXECUTE format('SELECT count(*) FROM (SELECT * FROM %s WHERE %s) x', source, condition) INTO rows;
  EXECUTE format('SELECT NOT EXISTS ((SELECT * FROM %1$s WHERE %2$s EXCEPT ALL SELECT * FROM s WHERE %2$s)
    UNION ALL (SELECT * FROM s WHERE %2$s EXCEPT ALL SELECT * FROM %1$s WHERE %2$s))', source, condition) INTO right_rows;
END$$;

-- one key, hash
SELECT pruned('h', '{big}', 'hash');
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE big = 5000000035 AND d > '2024-02-01';
SELECT c AS condition, t.* FROM unnest(ARRAY[
  'big = 5000000035', '5000000035 = big', 'big = 7', 'big = 7::smallint', 'big IS NULL', 'big IN (1000000007, 2000000014)',
  'big = ANY (ARRAY[1000000007, NULL, 3000000021])', 'big = ANY (''{}'')', 'big = ANY (NULL::bigint[])', 'big = NULL::bigint',
  'big = 1000000007 AND big = 2000000014', 'big = 1000000007 AND big IS NULL', 'big = 1000000007 * (SELECT 3::bigint)',
  'big IN (SELECT 1000000007 * g FROM generate_series(1::bigint, 3) g)',
  'big = ANY (''{{1000000007,2000000014},{3000000021,4000000028}}''::bigint[])',
  -- nothing to go by
  'big > 19000000133000', 'big <> 7', 'big = 7.0', 'big = id', 'big + 0 = 1000000007', 'big = (random() * 0)::bigint',
  'NOT big = 1000000007', 'big = ALL (''{1000000007}'')', 'big IS NOT DISTINCT FROM 1000000007', 'big = 1000000007 OR id = 3']) c, try(c) t;
SELECT pruned('h', '{small}', 'hash');
SELECT c AS condition, t.* FROM unnest(ARRAY['small = 7', 'small = 7::bigint', 'small = 70000', 'small = 5000000000',
  'small IN (1, 2, 70000)', 'small IN (1, 5000000000)', 'small = -1']) c, try(c) t;

-- several keys: all of them
SELECT pruned('h', '{t,small}', 'hash');
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE small IN (1, 2) AND t = 'k1' AND pad > 'a';
SELECT c AS condition, t.* FROM unnest(ARRAY['t = ''k1'' AND small = 1', 'small = 1 AND t IN (''k1'', ''k2'', ''k301'')',
  't IN (''k1'', ''k2'') AND small IN (1, 2)', 't = ANY (''{k1,k2}''::varchar[]) AND small = ANY (''{1}''::int8[])',
  't IS NULL AND small IS NULL', 't IS NULL AND small = 1', '(t, small) = (''k1'', 1)',
  't = ''k1''', 'small = 1', 't = ''k1'' AND small > 1', 't COLLATE "C" = ''k1'' AND small = 1']) c, try(c) t;

-- range
SELECT pruned('h', '{d}', 'range');
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE d >= '2024-03-01' AND d < '2024-03-10';
SELECT c AS condition, t.* FROM unnest(ARRAY['d = ''2024-05-05''', 'd >= ''2024-03-01'' AND d < ''2024-03-10''',
  'd BETWEEN ''2024-03-01'' AND ''2024-03-10''', 'd < ''2024-01-03''', '''2025-02-01'' < d', 'd > ''2030-01-01''', 'd < ''2000-01-01''',
  'd > ''2024-05-01'' AND d < ''2024-04-01''', 'd IS NULL', 'd IN (''2024-01-01'', ''2024-12-31'')', 'd > NULL', 'd = ''infinity''',
  'd < ''-infinity''', 'd > ''2025-01-20'' AND d = ''2025-01-30''',
  'd <> ''2024-01-01''', 'd > timestamp ''2024-12-12 00:00''', 'd > ANY (''{2024-12-12}''::date[])']) c, try(c) t;
SELECT pruned('h', '{small}', 'range');
SELECT c AS condition, t.* FROM unnest(ARRAY['small < 5', 'small < 5::bigint', 'small > 70000', 'small < 70000', 'small > -70000',
  'small > 290 AND small < 70000', 'small <= 70000 AND small >= 295', 'small = 70000']) c, try(c) t;
SELECT pruned('h', '{small,t}', 'range');
SELECT c AS condition, t.* FROM unnest(ARRAY['small = 5 AND t = ''k5''', 'small IN (5, 6) AND t IN (''k5'', ''k306'')',
  'small = 5 AND t IS NULL', 'small IS NULL AND t IS NULL', 'small = 5', 'small < 5']) c, try(c) t;
-- fewer bounds than partitions
SELECT count(*) FROM shuffle_write('SELECT * FROM h WHERE small IN (1, 2) OR small IS NULL', 'few', partitions => 9, keys => '{small}', method => 'range');
SELECT count(*), partitions_read('SELECT * FROM few WHERE small >= 2') FROM few WHERE small >= 2;
SELECT count(*), partitions_read('SELECT * FROM few WHERE small IS NULL') FROM few WHERE small IS NULL;

-- Every type that can be a key: each value is found, and no other.
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE DOMAIN dom AS varchar(20);
SELECT count(*) > 0 AS icu FROM pg_collation WHERE collprovider = 'i' \gset
\if :icu
CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
\else
CREATE COLLATION nocase FROM "C";
\endif
CREATE TABLE types AS SELECT i, (i % 2 = 0) AS bool, i::int2 AS int2, i AS int4, i::int8 AS int8, (i % 50)::oid AS oid, i / 4.0::float4 AS float4,
    CASE WHEN i % 9 = 0 THEN 'NaN' WHEN i % 9 = 1 THEN -0.0 ELSE i / 4.0 END::float8 AS float8, (i / 4.0)::numeric AS num,
    ('v' || i)::text AS text, ('v' || i)::varchar(20) AS vc, ('v' || i)::char(12) AS bp, ('v' || i)::dom AS dom, ('v' || i)::name AS name,
    (CASE i % 2 WHEN 0 THEN 'V' ELSE 'v' END || i / 2)::text COLLATE nocase AS nocase, ('v' || i)::bytea AS bytea, date '2000-01-01' + i AS date,
    time '00:00' + i * interval '1 s' AS time, timestamp '2000-01-01' + i * interval '1 h' AS ts, timestamptz '2000-01-01 00:00+00' + i * interval '1 h' AS tstz,
    i * interval '1 day' AS iv, md5(i::text)::uuid AS uuid, ('10.0.0.' || i % 256)::inet AS inet, (enum_range(NULL::mood))[i % 3 + 1] AS mood,
    ARRAY[i, i % 3] AS arr, int4range(i, i + 3) AS rng, ('{"a": ' || i || '}')::jsonb AS json
  FROM generate_series(1, 300) i;
INSERT INTO types (i) VALUES (0);
CREATE FUNCTION each_type(how text, OUT col text, OUT pruned bigint, OUT wrong bigint) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
  FOR col IN SELECT attname FROM pg_attribute WHERE attrelid = 'types'::regclass AND attnum > 1 ORDER BY attnum LOOP
    PERFORM pruned('types', ARRAY[col], how, 7);
    EXECUTE format('SELECT count(*) FILTER (WHERE a.n IS DISTINCT FROM b.n) FROM
      (SELECT t.i, (SELECT count(*) FROM types x WHERE x.%1$I = t.%1$I) AS n FROM types t) a JOIN
      (SELECT t.i, (SELECT count(*) FROM s WHERE s.%1$I = t.%1$I) AS n FROM types t OFFSET 0) b USING (i)', col) INTO wrong;
    EXECUTE format('SELECT count(*) FROM (SELECT %1$I AS v FROM types WHERE %1$I IS NOT NULL LIMIT 5) q WHERE
      partitions_read(format(''SELECT * FROM s WHERE %1$I = %%L::%2$s'', v)) = ''1''', col,
      (SELECT format_type(atttypid, atttypmod) || CASE WHEN attname = 'nocase' THEN ' COLLATE prune.nocase' ELSE '' END
       FROM pg_attribute WHERE attrelid = 'types'::regclass AND attname = col)) INTO pruned;
    RETURN NEXT;
  END LOOP;
END$$;
SELECT * FROM each_type('hash');
SELECT * FROM each_type('range');

-- Parameters: a correlated subquery asks again and again, a generic plan routes what it is given.
SELECT pruned('h', '{big}', 'hash');
EXPLAIN (COSTS OFF) SELECT x, (SELECT max(id) FROM s WHERE big = x * 1000000007::bigint) FROM generate_series(1, 5) x;
SELECT x, (SELECT max(id) FROM s WHERE big = x * 1000000007::bigint) FROM generate_series(1, 5) x;
SELECT x.v, y.id FROM (VALUES (1), (2), (NULL), (19999)) x(v), LATERAL (SELECT id FROM s WHERE big = x.v * 1000000007::bigint OFFSET 0) y;
SET plan_cache_mode = force_generic_plan;
PREPARE q(bigint) AS SELECT id FROM s WHERE big = $1;
EXECUTE q(5000000035);
EXECUTE q(6000000042);
EXECUTE q(NULL);
-- other keys while the plan is kept
TRUNCATE s;
SELECT 1 FROM shuffle_set('s', keys => '{id}', partitions => 11);
INSERT INTO s SELECT * FROM h;
EXECUTE q(5000000035);
EXPLAIN (COSTS OFF) EXECUTE q(5000000035);
DEALLOCATE q;
RESET plan_cache_mode;

-- cursors, columns that were added, dropped and renamed, whole rows and system columns
ALTER TABLE s DROP COLUMN small;
ALTER TABLE s ADD COLUMN late text DEFAULT 'late';
ALTER TABLE s RENAME COLUMN id TO ident;
SELECT s, tableoid::regclass, ctid IS NOT NULL AS ctid FROM s WHERE ident = 17;
SELECT late, partitions_read('SELECT late FROM s WHERE ident = 17') FROM s WHERE ident = 17;
SELECT count(*), partitions_read('SELECT count(*) FROM s WHERE ident = 17') FROM s WHERE ident = 17;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT ident FROM s WHERE ident IN (17, 18, 19) ORDER BY ident;
FETCH 2 FROM c;
FETCH BACKWARD 1 FROM c;
MOVE LAST IN c;
FETCH ALL FROM c;
FETCH FIRST FROM c;
COMMIT;
SELECT xmin FROM s WHERE ident = 17;

-- rows of the same transaction
BEGIN;
INSERT INTO s (ident, pad) VALUES (17, 'new');
SELECT pad FROM s WHERE ident = 17 ORDER BY 1;
ROLLBACK;
SELECT pad FROM s WHERE ident = 17;

-- joins, rows that are locked, and off by the server's own setting
SELECT count(*) FROM s a JOIN s b ON a.ident = b.ident - 1 WHERE a.ident = 17 AND b.ident = 18;
EXPLAIN (COSTS OFF) SELECT h.id FROM h JOIN s ON s.ident = 17 AND h.id = s.ident FOR UPDATE OF h;
UPDATE h SET pad = s.pad FROM s WHERE s.ident = 17 AND h.id = s.ident;
SET enable_partition_pruning = off;
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE ident = 17;
RESET enable_partition_pruning;

-- a partition of a partitioned table; in a parallel plan
CREATE TABLE parent (LIKE h) PARTITION BY LIST (small);
CREATE TABLE child PARTITION OF parent FOR VALUES IN (1, 2) USING shuffle;
CREATE TABLE other PARTITION OF parent DEFAULT;
SELECT 1 FROM shuffle_set('child', keys => '{id}', partitions => 5);
INSERT INTO parent SELECT * FROM h WHERE small < 5;
SELECT id, partitions_read('SELECT * FROM parent WHERE id = 301') FROM parent WHERE id = 301;
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT count(*) FROM h JOIN s ON h.id = s.ident WHERE s.ident IN (17, 18);
SELECT count(*) FROM s WHERE ident IN (17, 18);

-- row security and grants are those of the table
CREATE ROLE prune_user;
GRANT USAGE ON SCHEMA prune TO prune_user;
ALTER TABLE s ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON s USING (d < '2024-02-01');
SET ROLE prune_user;
SELECT ident FROM s WHERE ident = 17;
RESET ROLE;
GRANT SELECT (ident, d) ON s TO prune_user;
SET ROLE prune_user;
SELECT ident FROM s WHERE ident IN (17, 200);
SELECT pad FROM s WHERE ident = 17;
RESET ROLE;
DROP SCHEMA prune CASCADE;
DROP ROLE prune_user;
