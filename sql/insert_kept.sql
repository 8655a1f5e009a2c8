--
-- What is kept about a table from one statement to the next follows every change of it
--
SET client_min_messages = warning;

-- What the segments of a table were stored with, in order.
CREATE FUNCTION kept_stored(t regclass) RETURNS TABLE (number int, partitions int, codec text)
LANGUAGE sql AS $$
	SELECT row_number() OVER (ORDER BY s.number)::int, s.partitions, substring(s.routing from 'codec=(\S+)')
	FROM shuffle_segment s JOIN pg_class c ON c.relfilenode = s.filenumber WHERE c.oid = t ORDER BY 1
$$;

-- Settings, and options that are rolled back
CREATE TABLE kept (a int, b text) USING shuffle;
INSERT INTO kept VALUES (1, 'one');
SET shuffle_ext.codec = 'zstd';
INSERT INTO kept VALUES (2, 'two');
RESET shuffle_ext.codec;
INSERT INTO kept VALUES (3, 'three');
SELECT * FROM kept_stored('kept');

TRUNCATE kept;
BEGIN;
SELECT shuffle_set('kept', partitions => 4, keys => '{a}', codec => 'none');
INSERT INTO kept VALUES (1, 'one');
SELECT * FROM kept_stored('kept');
ROLLBACK;
INSERT INTO kept VALUES (2, 'two');
SELECT * FROM kept_stored('kept');

TRUNCATE kept;
BEGIN;
INSERT INTO kept VALUES (1, 'one');
DELETE FROM kept WHERE false;
SAVEPOINT s;
TRUNCATE kept;
SELECT shuffle_set('kept', partitions => 2, keys => '{b}');
INSERT INTO kept VALUES (2, 'two');
SELECT * FROM kept_stored('kept');
ROLLBACK TO s;
INSERT INTO kept VALUES (3, 'three');
COMMIT;
SELECT * FROM kept_stored('kept');
SELECT shuffle_set('kept', codec => 'zstd');
INSERT INTO kept VALUES (4, 'four');
SELECT * FROM kept_stored('kept');
TABLE kept ORDER BY a;

-- Columns
ALTER TABLE kept ADD c int DEFAULT 7;
INSERT INTO kept VALUES (5, 'five', 5);
ALTER TABLE kept RENAME b TO d;
INSERT INTO kept VALUES (6, 'six');
ALTER TABLE kept ALTER a TYPE bigint;
INSERT INTO kept VALUES (7000000000, 'seven');
ALTER TABLE kept DROP c, ADD e numeric(4, 2);
INSERT INTO kept VALUES (8, 'eight', 8.25);
TABLE kept ORDER BY a;

-- Another table of the name, and of the storage's number
DROP TABLE kept;
CREATE TABLE kept (a text, b int) USING shuffle;
INSERT INTO kept VALUES ('a', 1);
VACUUM FULL kept;
INSERT INTO kept VALUES ('b', 2);
TABLE kept ORDER BY a;

-- Types
CREATE TYPE kept_enum AS ENUM ('x', 'y');
CREATE TYPE kept_pair AS (one int, two text);
CREATE DOMAIN kept_domain AS int;
CREATE TABLE kept_types (e kept_enum, p kept_pair, d kept_domain) USING shuffle;
INSERT INTO kept_types VALUES ('x', (1, 'one'), 1);
ALTER TYPE kept_enum RENAME VALUE 'x' TO 'w';
ALTER TYPE kept_enum ADD VALUE 'z';
ALTER TYPE kept_pair RENAME ATTRIBUTE two TO zwei;
INSERT INTO kept_types VALUES ('z', (2, 'two'), 2);
INSERT INTO kept_types VALUES ('w', (3, 'three'), 3);
SELECT e, (p).one, (p).zwei, d FROM kept_types ORDER BY d;

-- A statement inside a statement on the same table; one that fails
CREATE FUNCTION kept_more() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.b > 0 THEN
		INSERT INTO kept VALUES (NEW.a || 'n', NEW.b - 1);
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER kept_more BEFORE INSERT ON kept FOR EACH ROW EXECUTE FUNCTION kept_more();
INSERT INTO kept VALUES ('c', 3), ('d', 2);
DO $$
BEGIN
	INSERT INTO kept VALUES ('e', 1), ('f', 1 / (SELECT 0));
EXCEPTION WHEN division_by_zero THEN
	INSERT INTO kept VALUES ('g', 0);
END $$;
INSERT INTO kept VALUES ('h', 0);
SELECT string_agg(a || b, ' ' ORDER BY a, b) FROM kept;

-- More tables than are kept, all in use at once and in turn
DO $$
BEGIN
	FOR i IN 1..40 LOOP
		EXECUTE format('CREATE TABLE kept_%s (a int, c%1$s text) USING shuffle', i);
	END LOOP;
	FOR j IN 1..3 LOOP
		FOR i IN 1..40 LOOP
			EXECUTE format('INSERT INTO kept_%s VALUES (%s, ''t%1$s'')', i, j);
		END LOOP;
	END LOOP;
END $$;
DO $$
DECLARE
	n int;
	total int := 0;
BEGIN
	FOR i IN 1..40 LOOP
		EXECUTE format('INSERT INTO kept_%s VALUES (4, ''t%1$s'')', i);
		EXECUTE format('SELECT count(*) FROM kept_%s WHERE c%1$s = ''t%1$s''', i) INTO n;
		total := total + n;
		EXECUTE format('DROP TABLE kept_%s', i);
	END LOOP;
	ASSERT total = 160, total;
END $$;

-- What is kept is small, whatever the rows were
CREATE TABLE kept_large (j jsonb) USING shuffle;
INSERT INTO kept_large SELECT to_jsonb(repeat('x', 5000000));
INSERT INTO kept_large VALUES ('{}');
INSERT INTO kept_large SELECT to_jsonb(repeat('y', 5000000));
SELECT sum(total_bytes) < 1000000 AS small FROM pg_backend_memory_contexts WHERE name LIKE 'shuffle%';
SELECT length(j::text) FROM kept_large ORDER BY 1;
DROP TABLE kept_large;

DROP TABLE kept, kept_types;
DROP TYPE kept_enum, kept_pair;
DROP DOMAIN kept_domain;
DROP FUNCTION kept_stored, kept_more;
