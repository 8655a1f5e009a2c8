--
-- shuffle_partition_of: where a row with these keys is, or would go
--
SET timezone = 'UTC';
SET client_min_messages = warning;	-- few rows for so many partitions
CREATE TYPE po_color AS ENUM ('red', 'green', 'blue');
CREATE DOMAIN po_domain AS int CHECK (VALUE >= 0);
CREATE TABLE po_heap AS
SELECT g AS i4, (g * 10000000000)::int8 AS i8, (g % 100)::int2 AS i2, (g * 1.25)::numeric(10,2) AS n, g * 0.5::float8 AS f8,
	'text ' || g AS t, ('c' || g)::char(10) AS c, ('v' || g)::varchar(20) AS v, DATE '2020-01-01' + g AS d,
	TIMESTAMPTZ '2020-01-01 12:00' + g * INTERVAL '1 hour' AS ts, md5(g::text)::uuid AS u,
	(ARRAY['red', 'green', 'blue'])[g % 3 + 1]::po_color AS e, g::po_domain AS dom, CASE WHEN g % 5 > 0 THEN g END AS nil,
	ARRAY[g, g + 1] AS a
FROM generate_series(1, 500) g;

-- each column as the only key, then three: every row is in the partition that the function tells
CREATE FUNCTION po_check(method text, keys text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	PERFORM shuffle_write('SELECT * FROM po_heap', 'po', partitions => 16, keys => keys, method => method, if_exists => 'replace');
	EXECUTE format('SELECT count(*) || '' rows, wrong: '' || count(*) FILTER (WHERE p <> shuffle_partition_of(''po'', %s))
		FROM (SELECT p, shuffle_read(NULL::po, p) AS r FROM generate_series(0, 15) p) s',
		(SELECT string_agg('(r).' || k, ', ' ORDER BY n) FROM unnest(keys) WITH ORDINALITY u(k, n))) INTO result;
	RETURN result;
END $$;
SELECT k, po_check('hash', ARRAY[k]) AS hash
FROM unnest('{i4,i8,i2,n,f8,t,c,v,d,ts,u,e,dom,nil,a}'::text[]) k;
SELECT k, po_check('range', ARRAY[k]) AS range
FROM unnest('{i4,i8,i2,n,f8,t,c,v,d,ts,u,e,dom,nil,a}'::text[]) k;
SELECT po_check('hash', '{t,nil,i8}') AS hash, po_check('range', '{e,nil,t}') AS range;

-- values of other types, and literals, as INSERT would take them
SELECT sum(rows) FROM shuffle_write('SELECT * FROM po_heap', 'po', partitions => 16, keys => '{i8,n,t,ts,dom}', if_exists => 'replace');
CREATE FUNCTION po_find(p int) RETURNS SETOF int LANGUAGE sql AS $$SELECT i4 FROM shuffle_read(NULL::po, p) WHERE i4 = 77$$;
SELECT po_find(shuffle_partition_of('po', 770000000000, 96.25, 'text 77'::varchar, '2020-01-04 17:00+00'::timestamptz, 77)),
	po_find(shuffle_partition_of('po', '770000000000', '96.250', 'text 77', '2020-01-04 18:00+01', '77')),
	po_find(shuffle_partition_of('po', 770000000000::numeric, 96.25::float8, 'text 77'::char(7), '2020-01-04 17:00'::timestamp, 77::int2)),
	po_find(shuffle_partition_of('po', 770000000000, 96.25::numeric(6,3), 'text 77'::name, '2020-01-04 17:00+00', 77::po_domain));
SELECT i8, t FROM shuffle_read(NULL::po, shuffle_partition_of('po', 10000000000, 1.25, 'text 1', '2020-01-01 13:00', 1)) WHERE i4 = 1;
SELECT count(*) FROM po_heap h, LATERAL shuffle_read(NULL::po, shuffle_partition_of('po', h.i8, h.n, h.t, h.ts, h.dom)) r
WHERE r.i4 = h.i4 AND h.i4 <= 20;

-- bounds: the partition above a bound that equals the key; NULL is last
SELECT sum(rows) FROM shuffle_write('SELECT * FROM po_heap', 'po', method => 'range', partitions => 3, keys => '{nil}', bounds => '{100,200}',
	if_exists => 'replace');
SELECT shuffle_partition_of('po', -5) AS a, shuffle_partition_of('po', 99) AS b, shuffle_partition_of('po', 100) AS c,
	shuffle_partition_of('po', 200) AS d, shuffle_partition_of('po', NULL) AS e, shuffle_partition_of('po', NULL::int) AS f;

-- a table that changes between two calls of the same expression
CREATE TABLE po_set (k int) USING shuffle;
SELECT shuffle_set('po_set', partitions => 4, method => 'range', keys => '{k}', bounds => '{10,20,30}');
RESET client_min_messages;
DO $$
DECLARE
	seen int[];
BEGIN
	FOR i IN 1 .. 3 LOOP
		seen := seen || shuffle_partition_of('po_set', 15);
		IF i = 2 THEN
			PERFORM shuffle_set('po_set', partitions => 4, method => 'range', keys => '{k}', bounds => '{1,2,3}');
		END IF;
	END LOOP;
	RAISE NOTICE '%', seen;
END $$;

-- what cannot be told
SELECT shuffle_partition_of(NULL, 1);
SELECT shuffle_partition_of('po', 1, 2);
SELECT shuffle_partition_of('po', '1x');
SELECT shuffle_partition_of('po', now());
SELECT shuffle_partition_of('po', 3000000000);
SELECT shuffle_partition_of('po', VARIADIC ARRAY[1]);
SELECT shuffle_partition_of('po_heap', 1);
SELECT shuffle_set('po_set', method => 'round_robin');
SELECT shuffle_partition_of('po_set', 1);
SELECT shuffle_set('po_set', method => 'single');
SELECT shuffle_partition_of('po_set', 1);
SELECT shuffle_set('po_set', method => 'hash', keys => '{k}', partitions => 4);
ALTER TABLE po_set ADD COLUMN l int;
ALTER TABLE po_set DROP COLUMN k;
SELECT shuffle_partition_of('po_set', 1);
-- no cast of a user runs
CREATE FUNCTION po_cast(po_color) RETURNS int LANGUAGE sql AS $$SELECT 1$$;
CREATE CAST (po_color AS int) WITH FUNCTION po_cast(po_color) AS ASSIGNMENT;
SELECT shuffle_partition_of('po', 'red'::po_color);
DROP CAST (po_color AS int);
-- it tells of rows, so that it needs what reading needs
CREATE ROLE po_user;
SET ROLE po_user;
SELECT shuffle_partition_of('po', 1);
RESET ROLE;
DROP ROLE po_user;

DROP FUNCTION po_check, po_find, po_cast;
DROP TABLE po, po_heap, po_set;
DROP DOMAIN po_domain;
DROP TYPE po_color;
