-- tables: t, log

CREATE TABLE t (id int, note text);
CREATE TABLE log (id int, seen bigint);
SELECT options('t', 3, 'id');
BEGIN;
INSERT INTO t VALUES (1, 'outer');
SAVEPOINT a;
INSERT INTO t VALUES (2, 'a');
SAVEPOINT b;
INSERT INTO t VALUES (3, 'b');
RELEASE b;
INSERT INTO t VALUES (4, 'a again');
ROLLBACK TO a;
INSERT INTO t VALUES (5, 'a after rollback');
RELEASE a;
COMMIT;
BEGIN;
SAVEPOINT a;
INSERT INTO t SELECT i, 'many' FROM generate_series(10, 500) i;
SAVEPOINT b;
TRUNCATE t;
INSERT INTO t VALUES (6, 'after truncate');
ROLLBACK TO b;
SELECT 1 / 0;
ROLLBACK TO a;
COMMIT;
BEGIN;
INSERT INTO t VALUES (7, 'lost');
ROLLBACK;
BEGIN;
TRUNCATE t;
INSERT INTO t VALUES (8, 'only one');
COMMIT;
DO $$
BEGIN
	FOR i IN 1 .. 20 LOOP
		BEGIN
			INSERT INTO t VALUES (i, 'loop');
			IF i % 3 = 0 THEN RAISE EXCEPTION 'no'; END IF;
		EXCEPTION WHEN OTHERS THEN
			INSERT INTO log VALUES (i, (SELECT count(*) FROM t));
		END;
	END LOOP;
END $$;
CREATE FUNCTION careful(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO log VALUES (i, NULL);
	RETURN 100 / (i % 5);
EXCEPTION WHEN division_by_zero THEN
	RETURN (SELECT count(*) FROM log);
END $$;
INSERT INTO t SELECT i, careful(i)::text FROM generate_series(1, 60) i;
CREATE FUNCTION looking(i int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	n int;
BEGIN
	BEGIN
		SELECT count(*) INTO n FROM t;
		IF i % 4 = 0 THEN RAISE EXCEPTION 'no'; END IF;
	EXCEPTION WHEN OTHERS THEN
		SELECT -count(*) INTO n FROM t;
	END;
	RETURN n;
END $$;
INSERT INTO t SELECT looking(i), 'looked' FROM generate_series(1, 30) i;
CREATE FUNCTION filling(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t VALUES (-i, 'filled');
	RETURN (SELECT count(*) FROM t WHERE note = 'filled');
END $$;
INSERT INTO t SELECT filling(i), 'filling' FROM generate_series(1, 25) i;
INSERT INTO log SELECT i, filling(i) FROM generate_series(1, 10) i;
SELECT filling(1), filling(2), count(*) FROM t;
CREATE FUNCTION nested(depth int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t VALUES (depth, 'nested');
	IF depth > 0 THEN PERFORM nested(depth - 1); END IF;
	IF depth % 2 = 1 THEN RAISE EXCEPTION 'odd'; END IF;
	RETURN depth;
EXCEPTION WHEN OTHERS THEN
	RETURN -depth;
END $$;
SELECT nested(6);
INSERT INTO t SELECT nested(i), 'in insert' FROM generate_series(1, 6) i;
CREATE PROCEDURE steps() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 9 LOOP
		INSERT INTO t VALUES (i, 'step');
		IF i % 3 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
	END LOOP;
	INSERT INTO t VALUES (0, 'last step');
END $$;
CALL steps();
BEGIN;
CALL steps();
ROLLBACK;
DO $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT * FROM t WHERE note = 'step' ORDER BY id LOOP
		INSERT INTO t VALUES (r.id + 100, 'from loop');
	END LOOP;
	UPDATE pg_catalog.pg_description SET description = description WHERE false;
	INSERT INTO t SELECT id, 'array' FROM unnest(ARRAY(SELECT id FROM t WHERE note = 'from loop')) id;
END $$;
BEGIN;
SAVEPOINT s;
INSERT INTO t VALUES (1, 'x');
SELECT 1 FROM nowhere;
INSERT INTO t VALUES (2, 'ignored');
ROLLBACK TO s;
INSERT INTO t VALUES (3, 'y');
SAVEPOINT s;
INSERT INTO t VALUES (4, 'z');
ROLLBACK TO s;
RELEASE s;
INSERT INTO t VALUES (5, 'end');
COMMIT;
BEGIN;
INSERT INTO t VALUES (70, 'prepared');
SAVEPOINT s;
INSERT INTO t VALUES (71, 'prepared');
ROLLBACK TO s;
INSERT INTO t SELECT i, 'prepared' FROM generate_series(72, 99) i;
PREPARE TRANSACTION 'differential';
ROLLBACK PREPARED 'differential';
BEGIN;
INSERT INTO t VALUES (80, 'prepared');
PREPARE TRANSACTION 'differential';
COMMIT PREPARED 'differential';
