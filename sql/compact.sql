--
-- shuffle_compact: the same rows in fewer segments
--
CREATE TABLE c (id int, k int, note text, amount numeric(12,2)) USING shuffle;
CREATE TABLE reference (LIKE c);

-- one segment per INSERT
DO $$
BEGIN
	FOR i IN 1..200 LOOP
		INSERT INTO c SELECT i * 10 + j, j, 'note ' || i, i / 7.0 FROM generate_series(1, 5) j;
	END LOOP;
END $$;
INSERT INTO reference TABLE c;
SELECT count(*), min(rows), max(rows), max(files) FROM shuffle_segments WHERE relation = 'c'::regclass;

SELECT segments_before, segments_after, rows, bytes_before > bytes_after AS smaller FROM shuffle_compact('c');
SELECT count(*), sum(rows) FROM shuffle_segments WHERE relation = 'c'::regclass;
(TABLE c EXCEPT ALL TABLE reference) UNION ALL (TABLE reference EXCEPT ALL TABLE c);
SELECT bytes_after = shuffle_size('c') AS same, rows FROM shuffle_compact('c');
SELECT error FROM shuffle_verify('c') WHERE error IS NOT NULL;

-- rows keep their order inside a partition, and their partition
CREATE TABLE parts (id int, k int) USING shuffle;
SECURITY LABEL FOR shuffle_ext ON COLUMN parts.k IS 'key=1';
SECURITY LABEL FOR shuffle_ext ON TABLE parts IS
	'partitions=4 method=hash keys=1 hash=postgres layout=log codec=lz4 types=arrow unrepresentable=error';
DO $$
BEGIN
	FOR i IN 1..50 LOOP
		INSERT INTO parts VALUES (2 * i, i % 13), (2 * i + 1, i % 7);
		COMMIT;
	END LOOP;
END $$;
SELECT segments_before, segments_after, rows FROM shuffle_compact('parts');
CREATE TABLE hashed (id int, k int) PARTITION BY HASH (k);
SELECT count(*) AS wrong_partition
	FROM generate_series(0, 3) p, shuffle_read(NULL::parts, p) r
	WHERE NOT satisfies_hash_partition('hashed'::regclass, 4, p, r.k);
SELECT p, count(*), bool_and(id > previous) AS ascending
	FROM (SELECT p, id, lag(id, 1, 0) OVER (PARTITION BY p ORDER BY n) AS previous
	      FROM (SELECT p, (r).id, row_number() OVER () AS n
	            FROM (SELECT p, shuffle_read(NULL::parts, p) AS r FROM generate_series(0, 3) p) x) y) z
	GROUP BY p ORDER BY p;
DROP TABLE hashed;

-- round robin has no key: rows stay in their partitions
SELECT count(*) FROM shuffle_write('SELECT i FROM generate_series(1, 100) i', 'robin', partitions => 4);
INSERT INTO robin SELECT generate_series(101, 120);
INSERT INTO robin SELECT generate_series(121, 140);
CREATE TEMP TABLE robin_before AS SELECT p, shuffle_read(NULL::robin, p) AS r FROM generate_series(0, 3) p;
SELECT segments_before, segments_after, rows FROM shuffle_compact('robin');
SELECT count(*) FROM (SELECT p, shuffle_read(NULL::robin, p) FROM generate_series(0, 3) p
	EXCEPT TABLE robin_before) x;

-- nothing to do: no segment, one segment, one that is larger than the rest
CREATE TABLE few (i int, filler text) USING shuffle;
SELECT * FROM shuffle_compact('few');
INSERT INTO few VALUES (1, 'x');
SELECT segments_before, segments_after, rows FROM shuffle_compact('few');
ALTER TABLE few ALTER COLUMN filler SET STORAGE PLAIN;
INSERT INTO few SELECT i, string_agg(md5((i * 100 + j)::text), '') FROM generate_series(1, 700) i, generate_series(1, 100) j GROUP BY i;
SELECT bytes > 1048576 AS large FROM shuffle_segments WHERE relation = 'few'::regclass ORDER BY segment;
SELECT segments_before, segments_after, rows FROM shuffle_compact('few');
INSERT INTO few VALUES (2, 'y');
SELECT segments_before, segments_after, rows FROM shuffle_compact('few');

-- what the transaction itself has written is not touched; a rollback undoes a compaction
BEGIN;
INSERT INTO c VALUES (1, 1, 'own', 1);
INSERT INTO c VALUES (2, 2, 'own', 2);
SELECT segments_before, segments_after, rows FROM shuffle_compact('c');
COMMIT;
BEGIN;
SAVEPOINT s;
SELECT segments_before, segments_after, rows FROM shuffle_compact('c');
SELECT count(*) FROM shuffle_segments WHERE relation = 'c'::regclass;
ROLLBACK TO s;
SELECT count(*) FROM shuffle_segments WHERE relation = 'c'::regclass;
SELECT count(*), sum(id) FROM c;
COMMIT;

-- a statement sees one state of the table, also when it compacts
SELECT (SELECT count(*) FROM c), (shuffle_compact('c')).segments_after, (SELECT count(*) FROM c);
SELECT count(*) FROM c;

-- a cursor opened before goes on
INSERT INTO c VALUES (3, 3, 'three', 3);
BEGIN;
DECLARE cur CURSOR FOR SELECT count(*) OVER (), id FROM c ORDER BY id DESC;
FETCH 1 FROM cur;
SELECT segments_before, segments_after FROM shuffle_compact('c');
FETCH 1 FROM cur;
MOVE ALL FROM cur;
COMMIT;

-- columns added, dropped and changed since
CREATE TABLE changed (a int, b text, c varchar(10)) USING shuffle;
INSERT INTO changed VALUES (1, 'gone', 'one');
ALTER TABLE changed ADD COLUMN d int DEFAULT 42;
INSERT INTO changed VALUES (2, 'gone', 'two', 7);
ALTER TABLE changed DROP COLUMN b;
ALTER TABLE changed ALTER COLUMN c TYPE text;
INSERT INTO changed VALUES (3, 'three, and longer than that', NULL);
SELECT * FROM changed ORDER BY a;
SELECT segments_before, segments_after, rows FROM shuffle_compact('changed');
SELECT * FROM changed ORDER BY a;

-- partition files
SELECT count(*) FROM shuffle_write('SELECT i, repeat(''x'', 100) AS t FROM generate_series(1, 10000) i', 'files',
	partitions => 3, keys => '{i}', layout => 'partition_files');
SELECT count(*) FROM shuffle_write('SELECT i, repeat(''x'', 100) AS t FROM generate_series(1, 10000) i', 'files', if_exists => 'append');
SELECT segments_before, segments_after, rows FROM shuffle_compact('files');
SELECT layout, files, rows FROM shuffle_segments WHERE relation = 'files'::regclass;
SELECT count(*), count(DISTINCT i), sum(i) FROM files;

-- who may, and on what
CREATE ROLE regress_compact;
GRANT SELECT, INSERT ON c TO regress_compact;
SET ROLE regress_compact;
SELECT * FROM shuffle_compact('c');
RESET ROLE;
DROP OWNED BY regress_compact;
DROP ROLE regress_compact;
SELECT * FROM shuffle_compact('reference');
CREATE VIEW v AS SELECT 1 AS one;
SELECT * FROM shuffle_compact('v');
DROP VIEW v;
SELECT shuffle_compact(NULL) IS NULL AS null;
BEGIN READ ONLY;
SELECT * FROM shuffle_compact('c');
ROLLBACK;

DROP TABLE c, reference, parts, robin, robin_before, few, changed, files;
SELECT count(*) FROM shuffle_segment;
