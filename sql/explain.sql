--
-- What EXPLAIN says of shuffle tables: rows, costs and reads
--
CREATE FUNCTION explain(query text, options text DEFAULT '') RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE format('EXPLAIN (FORMAT json%s) %s', options, query) INTO plan;
	RETURN plan -> 0;
END $$;
SET max_parallel_workers_per_gather = 0;

CREATE TABLE e (id int, filler text) USING shuffle;
CREATE TABLE e_heap (LIKE e) USING heap;
INSERT INTO e SELECT i, md5(i::text) FROM generate_series(1, 100000) i;
INSERT INTO e_heap TABLE e;
VACUUM ANALYZE e_heap;

-- the number of rows is known without ANALYZE, and what is stored compressed is cheaper to read
SELECT (explain('TABLE e') #>> '{Plan,Plan Rows}')::int AS rows,
	(explain('TABLE e') #>> '{Plan,Total Cost}')::float < (explain('TABLE e_heap') #>> '{Plan,Total Cost}')::float AS cheaper;

-- what compresses to nearly nothing must still be decoded
CREATE TABLE e_same (id int, filler text) USING shuffle;
INSERT INTO e_same SELECT 1, repeat('x', 1000) FROM generate_series(1, 20000) i;
SELECT shuffle_size('e_same') < 1000000 AS small,
	(explain('TABLE e_same') #>> '{Plan,Total Cost}')::float
		> 20000 * 0.01 + shuffle_size('e_same') / 8192 + 20000000 / 8192 / 5 AS decoded;

-- and several processes share that work: there are workers for it
SET max_parallel_workers_per_gather = 2;
SET min_parallel_table_scan_size = '2MB';
SET parallel_setup_cost = 0;
SELECT explain('SELECT count(filler) FROM e_same WHERE id > 0') #>> '{Plan,Plans,0,Workers Planned}' AS workers;
RESET min_parallel_table_scan_size;
RESET parallel_setup_cost;
SET max_parallel_workers_per_gather = 0;

-- bytes that come from files are reads: of the node that first needs a column of the block
SET track_io_timing = on;
SELECT abs((plan #>> '{Plan,Shared Read Blocks}')::int - shuffle_size('e') / 8192) < 50 AS read,
	plan #>> '{Plan,Plans,0,Actual Rows}' ~ '^100000(\.00)?$' AS rows
FROM explain('SELECT count(filler) FROM e', ', ANALYZE, BUFFERS') plan;
SELECT (plan #>> '{Plan,Shared Read Blocks}')::int < 50 AS none
FROM explain('SELECT count(*) FROM e', ', ANALYZE, BUFFERS') plan;

-- rows of INSERT are counted as for any table, and what it says was executed has been
SELECT plan #>> '{Plan,Operation}' AS operation, (plan #>> '{Plan,Actual Rows}')::float AS rows,
	(plan #>> '{Plan,Plans,0,Actual Rows}')::float AS source
FROM explain('INSERT INTO e SELECT * FROM e_heap WHERE id <= 10', ', ANALYZE, VERBOSE') plan;
SELECT explain('INSERT INTO e SELECT * FROM e_heap WHERE id <= 10') #>> '{Plan,Operation}' AS operation;
SELECT count(*) FROM e;

DROP TABLE e, e_heap, e_same;
DROP FUNCTION explain;
