--
-- shuffle_read in FROM: a plan node of its own, which must return what the function
-- returns in a select list, and the heap table that the rows came from has
--
SET max_parallel_workers_per_gather = 0;
CREATE TABLE from_heap AS
SELECT g AS id, CASE WHEN g % 10 > 0 THEN 'text ' || g END AS t, (g % 100)::numeric(10,2) AS q,
	repeat(chr(97 + g % 26), g % 50) AS w
FROM generate_series(1, 20000) g;
SELECT sum(rows) FROM shuffle_write('SELECT id, t, 0 AS gone, q, w FROM from_heap', 'from_s',
	partitions => 8, keys => '{id}', if_exists => 'replace');
ALTER TABLE from_s DROP COLUMN gone;
CREATE VIEW from_called AS	-- the function, in a select list
SELECT p, (r).* FROM (SELECT p, shuffle_read(NULL::from_s, p) AS r FROM generate_series(0, 7) p OFFSET 0) c;
SELECT count(*), count(DISTINCT p) AS partitions FROM from_called;

-- only columns that are used are taken; filters stay above
EXPLAIN (VERBOSE, COSTS OFF)
SELECT q, upper(t) FROM shuffle_read(NULL::from_s, 3, 4) WHERE w > 'b';
EXPLAIN (VERBOSE, COSTS OFF)
SELECT p, r.id FROM generate_series(0, 7) p, shuffle_read(NULL::from_s, p) r WHERE r.q > p;

(SELECT id, t, q, w FROM shuffle_read(NULL::from_s, 0, 1, 2, 3, 4, 5, 6, 7) EXCEPT ALL TABLE from_heap)
UNION ALL (TABLE from_heap EXCEPT ALL SELECT * FROM shuffle_read(NULL::from_s, 0, 1, 2, 3, 4, 5, 6, 7));
(SELECT p, r.* FROM generate_series(0, 7) p, shuffle_read(NULL::from_s, p) r EXCEPT ALL TABLE from_called)
UNION ALL (TABLE from_called EXCEPT ALL SELECT p, r.* FROM generate_series(0, 7) p, shuffle_read(NULL::from_s, p) r);
SELECT sum(q), count(t), (SELECT (sum(q), count(t)) FROM from_called WHERE p IN (3, 4) AND w > 'b') AS called
FROM shuffle_read(NULL::from_s, 3, 4) WHERE w > 'b';
SELECT count(*), (SELECT count(*) FROM from_called WHERE p < 4) AS called
FROM shuffle_read(NULL::from_s, VARIADIC (SELECT array_agg(i) FROM generate_series(0, 3) i));
-- in the order of the file
SELECT array_agg(id) = (SELECT array_agg(id) FROM from_called WHERE p = 5) AS same FROM shuffle_read(NULL::from_s, 5);

-- again and again, with the same partitions and with others
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SELECT count(*), sum(b.id) = 3 * (SELECT sum(id) FROM from_called WHERE p = 2) AS same
FROM generate_series(1, 3) a LEFT JOIN shuffle_read(NULL::from_s, 2) b ON b.id <> -a;
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_material;
SELECT p, (SELECT max(id) FROM shuffle_read(NULL::from_s, p, (p + 1) % 8) WHERE id < p * 1000) AS here,
	(SELECT max(id) FROM from_called c WHERE c.p IN (g.p, (g.p + 1) % 8) AND id < g.p * 1000) AS called
FROM generate_series(0, 7) g(p);
SELECT count(*) FROM shuffle_read(NULL::from_s, 1) a JOIN shuffle_read(NULL::from_s, 1) b USING (id)
HAVING count(*) = (SELECT count(*) FROM from_called WHERE p = 1);

-- no more is read than is asked for: the second partition does not exist
SELECT count(*) FROM (SELECT 1 FROM shuffle_read(NULL::from_s, 0) UNION ALL
	SELECT 1 FROM shuffle_read(NULL::from_s, 8) LIMIT 5) q;
SELECT count(*) FROM (SELECT 1 FROM shuffle_read(NULL::from_s, 0) UNION ALL
	SELECT 1 FROM shuffle_read(NULL::from_s, 8)) q;

-- none of many keeps its file open until all are done
SELECT string_agg(format('SELECT t FROM shuffle_read(NULL::from_s, %s)', i % 8), ' UNION ALL ') AS many
FROM generate_series(1, 400) i
\gset
SELECT count(t) = 50 * (SELECT count(t) FROM from_called) AS same FROM (:many) q;

-- cursors, backwards too
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT row_number() OVER (), id FROM shuffle_read(NULL::from_s, 6);
MOVE 50 IN c;
FETCH 2 FROM c;
FETCH BACKWARD 2 FROM c;
COMMIT;
BEGIN;
DECLARE c NO SCROLL CURSOR FOR SELECT id FROM shuffle_read(NULL::from_s, 6);
MOVE 50 IN c;
SAVEPOINT s;
FETCH 1 FROM c;
ROLLBACK TO s;
FETCH 1 FROM c;
DROP TABLE from_s CASCADE;
COMMIT;

-- rows that the statement itself adds are not seen, those before it are
BEGIN;
INSERT INTO from_s SELECT 20000 + id, t, q, w FROM shuffle_read(NULL::from_s, 7);
INSERT INTO from_s SELECT 40000 + id, t, q, w FROM shuffle_read(NULL::from_s, 0, 1, 2, 3, 4, 5, 6, 7);
SELECT count(*) FILTER (WHERE id BETWEEN 20001 AND 40000) AS first, count(*) FILTER (WHERE id > 40000) - 20000 AS second,
	(SELECT count(*) FROM from_called WHERE p = 7 AND id <= 20000) AS called
FROM shuffle_read(NULL::from_s, 0, 1, 2, 3, 4, 5, 6, 7);
ROLLBACK;

-- what the node does not do, the function does
CREATE FUNCTION from_by(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line ~ 'Function Scan on shuffle_read|Custom Scan .shuffle_read' THEN
			RETURN substring(line FROM '[A-Z].*');
		END IF;
	END LOOP;
	RETURN NULL;
END $$;
SELECT from_by('SELECT r FROM shuffle_read(NULL::from_s, 0) r');
SELECT from_by('SELECT id FROM shuffle_read(NULL::from_s, 0) r WHERE r IS NOT NULL');
SELECT from_by('SELECT id, n FROM shuffle_read(NULL::from_s, 0) WITH ORDINALITY r(id, t, q, w, n)');
SELECT from_by('SELECT id, n FROM ROWS FROM (shuffle_read(NULL::from_s, 0), generate_series(1, 3)) shuffle_read(id, t, q, w, n)');
SELECT from_by('SELECT h.id FROM from_heap h JOIN shuffle_read(NULL::from_s, 0) r USING (id) FOR UPDATE OF h');
SELECT from_by('UPDATE from_heap h SET q = 0 WHERE id IN (SELECT id FROM shuffle_read(NULL::from_s, 0))');
SELECT (SELECT count(r) FROM shuffle_read(NULL::from_s, 0) r) = count(*) AS whole,
	(SELECT max(n) FROM shuffle_read(NULL::from_s, 0) WITH ORDINALITY r(id, t, q, w, n)) = count(*) AS numbered
FROM from_called WHERE p = 0;
UPDATE from_heap h SET q = h.q + 1 FROM shuffle_read(NULL::from_s, 0) r WHERE h.id = r.id AND r.id <= 20;
SELECT count(*) = (SELECT count(*) FROM from_called WHERE p = 0 AND id <= 20) AS same
FROM from_heap WHERE q = id % 100 + 1;

-- privileges are those of the call
CREATE ROLE from_user;
GRANT SELECT ON from_heap TO from_user;
SET ROLE from_user;
SELECT count(*) FROM shuffle_read(NULL::from_s, 0);
RESET ROLE;
GRANT SELECT ON from_s TO from_user;
REVOKE EXECUTE ON FUNCTION shuffle_read(anyelement, int[]) FROM PUBLIC;
SET ROLE from_user;
SELECT count(*) FROM shuffle_read(NULL::from_s, 0);
RESET ROLE;
GRANT EXECUTE ON FUNCTION shuffle_read(anyelement, int[]) TO PUBLIC;
SET ROLE from_user;
SELECT count(*) > 0 AS works FROM shuffle_read(NULL::from_s, 0);
RESET ROLE;
REVOKE ALL ON from_s, from_heap FROM from_user;
DROP ROLE from_user;

-- a plan that is older than the table's columns
SET plan_cache_mode = force_generic_plan;
PREPARE from_plan(int) AS SELECT count(q), max(w) IS NOT NULL AS w FROM shuffle_read(NULL::from_s, $1);
EXECUTE from_plan(1);
EXECUTE from_plan(2);
EXECUTE from_plan(8);
EXECUTE from_plan(NULL);
CREATE TABLE from_rows (p int, id int, t text, q numeric(10,2), w text);
INSERT INTO from_rows TABLE from_called;
DROP VIEW from_called;
ALTER TABLE from_s ADD COLUMN more int DEFAULT 7;
EXECUTE from_plan(1);
SELECT DISTINCT more FROM shuffle_read(NULL::from_s, 1);
ALTER TABLE from_s ALTER COLUMN w TYPE varchar(100);
EXECUTE from_plan(1);
ALTER TABLE from_s ALTER COLUMN w TYPE text;
EXECUTE from_plan(1);
ALTER TABLE from_s DROP COLUMN q;
EXECUTE from_plan(1);
ALTER TABLE from_s ADD COLUMN q numeric(10,2);
EXECUTE from_plan(1);
DISCARD PLANS;
EXECUTE from_plan(1);
DEALLOCATE from_plan;

-- and one whose table is gone
CREATE TABLE from_gone (a int) USING shuffle;
PREPARE from_plan AS SELECT a FROM shuffle_read(NULL::from_gone, 0);
EXECUTE from_plan;
DROP TABLE from_gone;
DO $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) EXECUTE from_plan' INTO plan;
	RAISE NOTICE 'table %', plan->0->'Plan'->>'Table';
END
$$;
DEALLOCATE from_plan;
RESET plan_cache_mode;

-- inside one worker of a parallel plan
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT from_by('SELECT count(*) FROM from_heap h JOIN shuffle_read(NULL::from_s, 0, 1) r USING (id) WHERE r.w > ''b''');
SELECT count(*), (SELECT count(*) FROM from_rows WHERE p < 2 AND w > 'b') AS called
FROM from_heap h JOIN shuffle_read(NULL::from_s, 0, 1) r USING (id) WHERE r.w > 'b';
-- compiled
SET jit_above_cost = 0;
SET jit_inline_above_cost = 0;
SELECT sum(id), min(w), (SELECT (sum(id), min(w)) FROM from_rows WHERE p = 6 AND id % 3 = 1) AS called
FROM shuffle_read(NULL::from_s, 6) WHERE id % 3 = 1;
DROP FUNCTION from_by(text);
DROP TABLE from_heap;
DROP TABLE from_s, from_rows;
