-- Options of a table as security labels.
SET client_min_messages = warning;
CREATE TABLE labelled (a int, b text, c date) USING shuffle;
CREATE TABLE plain (a int);
SELECT partitions FROM (SELECT count(*) AS partitions FROM shuffle_partitions WHERE relation = 'labelled'::regclass) p;

-- what a label may say
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=4 method=hash keys=2';
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS '';
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=4';
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=4 method=hash';
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=x method=round_robin';
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=4 method=round_robin colour=red';
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=4 method=round_robin method=hash';
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=4 method=round_robin keys=1';
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=4 method=hash keys=33';
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=4 method=hash keys=2 attnums={1,2}';
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=4 method=range keys=1 bounds={1,2,3,4}';
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=4 method=range keys=1 bounds=''{1,2';
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'four partitions';
SECURITY LABEL FOR shuffle_ext ON COLUMN labelled.a IS 'key=1';
SECURITY LABEL FOR shuffle_ext ON COLUMN labelled.b IS 'key=1';
SECURITY LABEL FOR shuffle_ext ON COLUMN labelled.b IS 'key=2';
SECURITY LABEL FOR shuffle_ext ON COLUMN labelled.c IS 'key=0';
SECURITY LABEL FOR shuffle_ext ON COLUMN labelled.c IS 'key=33';
SECURITY LABEL FOR shuffle_ext ON COLUMN labelled.c IS 'key';
SECURITY LABEL FOR shuffle_ext ON COLUMN labelled.ctid IS 'key=3';
-- another table may have one for the day it becomes a shuffle table; other things may not
SET client_min_messages = notice;
SECURITY LABEL FOR shuffle_ext ON TABLE plain IS 'partitions=4 method=hash keys=1';
SET client_min_messages = warning;
SECURITY LABEL FOR shuffle_ext ON COLUMN plain.a IS 'key=1';
INSERT INTO plain SELECT generate_series(1, 100);
SECURITY LABEL FOR shuffle_ext ON TABLE plain IS 'partitions=5 method=hash keys=1';
ALTER TABLE plain SET ACCESS METHOD shuffle;
SELECT partition, rows > 0 AS filled FROM shuffle_partitions WHERE relation = 'plain'::regclass ORDER BY 1;
SECURITY LABEL FOR shuffle_ext ON TABLE plain IS 'partitions=4 method=hash keys=1';
DROP TABLE plain;
CREATE VIEW view AS SELECT 1 AS one;
SECURITY LABEL FOR shuffle_ext ON TABLE view IS 'partitions=4 method=round_robin';
SECURITY LABEL FOR shuffle_ext ON VIEW view IS 'partitions=4 method=round_robin';
DROP VIEW view;
SECURITY LABEL FOR shuffle_ext ON SCHEMA public IS 'partitions=4 method=round_robin';

-- only the owner
CREATE ROLE regress_shuffle_other;
SET ROLE regress_shuffle_other;
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=5 method=round_robin';
SECURITY LABEL FOR shuffle_ext ON COLUMN labelled.a IS NULL;
RESET ROLE;
DROP ROLE regress_shuffle_other;

-- they decide where rows go, follow RENAME, and a rollback takes them back
ALTER TABLE labelled RENAME b TO bb;
BEGIN;
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=3 method=round_robin';
ROLLBACK;
CREATE TABLE parent (a int, b text) PARTITION BY HASH (a, b);
SELECT sum(rows) AS rows, count(*) AS partitions
FROM shuffle_write('SELECT i AS a, ''b'' || i AS b, date ''2020-01-01'' AS c FROM generate_series(1, 100) i', 'labelled', if_exists => 'append');
SELECT count(*), count(*) FILTER (WHERE NOT satisfies_hash_partition('parent'::regclass, 4, p, a, bb)) AS misplaced
FROM generate_series(0, 3) p, shuffle_read(NULL::labelled, p);
DROP TABLE parent;

-- with rows in the table, routing stays; the rest may change
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=5 method=hash keys=2';
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS NULL;
SECURITY LABEL FOR shuffle_ext ON COLUMN labelled.a IS NULL;
SECURITY LABEL FOR shuffle_ext ON COLUMN labelled.c IS 'key=3';
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=4 method=hash keys=2 codec=zstd types=native';
SECURITY LABEL FOR shuffle_ext ON COLUMN labelled.a IS 'key=1';
-- rows of a transaction that is not yet committed count
BEGIN;
CREATE TABLE fresh (a int) USING shuffle;
SELECT sum(rows) AS rows FROM shuffle_write('SELECT 1 AS a', 'fresh', if_exists => 'append');
SECURITY LABEL FOR shuffle_ext ON TABLE fresh IS 'partitions=2 method=round_robin';
ROLLBACK;
-- those that this transaction has truncated do not
BEGIN;
TRUNCATE labelled;
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=2 method=round_robin';
ROLLBACK;
-- and nobody may be at work on the table
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM labelled;
FETCH 1 FROM c;
SECURITY LABEL FOR shuffle_ext ON TABLE labelled IS 'partitions=2 method=round_robin';
ROLLBACK;

-- a key column that is gone stops writing, not reading
ALTER TABLE labelled DROP COLUMN a;
SELECT count(*) FROM labelled;
SELECT shuffle_write('SELECT ''b''::text, date ''2020-01-01''', 'labelled', if_exists => 'append');
SELECT shuffle_write('TABLE labelled', 'labelled', if_exists => 'replace');
SELECT sum(rows) AS rows, count(*) AS partitions
FROM shuffle_write('TABLE labelled', 'labelled', keys => '{c}', if_exists => 'replace');
SELECT objtype, objname, label FROM pg_seclabels WHERE provider = 'shuffle_ext' ORDER BY objtype DESC, objname;

-- labels go with their table, and come off one that is no longer ours
DROP TABLE labelled;
SELECT count(*) FROM pg_seclabels WHERE provider = 'shuffle_ext';
CREATE TABLE leaving (a int) USING shuffle;
SECURITY LABEL FOR shuffle_ext ON TABLE leaving IS 'partitions=2 method=round_robin';
ALTER TABLE leaving SET ACCESS METHOD heap;
SECURITY LABEL FOR shuffle_ext ON TABLE leaving IS NULL;
DROP TABLE leaving;
CREATE SCHEMA "lab's";
CREATE TABLE "lab's"."lea""ving" ("b.c" int) USING shuffle;
SELECT shuffle_set('"lab''s"."lea""ving"', partitions => 2, keys => '{b.c}');
INSERT INTO "lab's"."lea""ving" VALUES (1);
CREATE MATERIALIZED VIEW leaving USING shuffle AS SELECT 1 AS a WITH NO DATA;
SELECT shuffle_set('leaving', partitions => 2, keys => '{a}');
ALTER TABLE "lab's"."lea""ving" SET ACCESS METHOD heap;
ALTER MATERIALIZED VIEW leaving SET ACCESS METHOD heap;
SELECT format('SECURITY LABEL FOR shuffle_ext ON %s IS NULL', CASE objsubid
		WHEN 0 THEN concat_ws(' ', objtype, objoid::regclass)
		ELSE format('COLUMN %s.%I', objoid::regclass, attname) END)
	FROM pg_seclabels LEFT JOIN pg_attribute ON attrelid = objoid AND attnum = objsubid
	WHERE provider = 'shuffle_ext' ORDER BY 1 \gexec
SELECT * FROM pg_seclabels WHERE provider = 'shuffle_ext';
DROP TABLE "lab's"."lea""ving";
DROP MATERIALIZED VIEW leaving;
DROP SCHEMA "lab's";

-- What readers have cached of a label goes with the label, also back
CREATE TABLE cached (a int) USING shuffle;
SECURITY LABEL FOR shuffle_ext ON TABLE cached IS 'partitions=2 method=round_robin';
SELECT count(*) FROM shuffle_read(NULL::cached, 1);
BEGIN;
SECURITY LABEL FOR shuffle_ext ON TABLE cached IS 'partitions=5 method=round_robin types=native';
SELECT count(*) FROM shuffle_read(NULL::cached, 4);
SAVEPOINT s;
SECURITY LABEL FOR shuffle_ext ON TABLE cached IS NULL;
SELECT count(*) FROM shuffle_read(NULL::cached, 1);
ROLLBACK TO s;
SELECT count(*) FROM shuffle_read(NULL::cached, 4);
ROLLBACK;
SELECT count(*) FROM shuffle_read(NULL::cached, 4);
SELECT count(*) FROM shuffle_read(NULL::cached, 1);
DROP TABLE cached;

-- Virtual generated columns (18) have no value yet when rows are routed
DO $$
DECLARE
	statement text;
	said text;
BEGIN
	IF current_setting('server_version_num')::int < 180000 THEN
		RETURN;
	END IF;
	EXECUTE 'CREATE TABLE computed (a int, v int GENERATED ALWAYS AS (a * 2) VIRTUAL) USING shuffle';
	FOREACH statement IN ARRAY ARRAY[
		$q$SELECT shuffle_set('computed', partitions => 4, keys => '{v}')$q$,
		$q$SELECT shuffle_set('computed', partitions => 2, keys => '{a,v}', method => 'range', bounds => '{"(1,1)"}')$q$,
		$q$SECURITY LABEL FOR shuffle_ext ON COLUMN computed.v IS 'key=1'$q$]
	LOOP
		said := 'nothing';
		BEGIN
			EXECUTE statement;
		EXCEPTION WHEN invalid_object_definition THEN
			said := SQLERRM;
		END;
		ASSERT said = 'virtual generated column "v" cannot be a key', statement || ': ' || said;
	END LOOP;
	EXECUTE 'DROP TABLE computed';
END
$$;
