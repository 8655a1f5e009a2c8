-- tables: t, p, defaults

CREATE TABLE t (id int NOT NULL, note text, amount numeric(8,2) CHECK (amount >= 0));
CREATE TABLE p (id int, part int, note text) PARTITION BY LIST (part);
CREATE SEQUENCE numbers;
CREATE TABLE defaults (id int DEFAULT nextval('numbers'), a int, twice int GENERATED ALWAYS AS (a * 2) STORED, b text DEFAULT 'b');
DO $$ BEGIN FOR i IN 0 .. 39 LOOP EXECUTE format('CREATE TABLE p%s PARTITION OF p FOR VALUES IN (%s)', i, i); END LOOP; END $$;
COPY t FROM STDIN;
1	one	1.00
2	\N	\N
3	tab\tand\\backslash	3
\.
COPY t (amount, id) FROM STDIN (FORMAT csv, HEADER);
amount,id
4.5,4
,5
"6.25",6
\.
COPY t FROM STDIN;
7	seven	7
8	eight	-8
9	nine	9
\.
COPY t FROM STDIN;
10	ten	10
\N	eleven	11
\.
COPY t FROM STDIN;
12	twelve	not a number
\.
COPY t FROM STDIN;
13	thirteen
\.
COPY t FROM STDIN WHERE id % 2 = 1;
21	a	1
22	b	2
23	c	3
\.
COPY defaults (a) FROM STDIN;
1
2
3
\.
SELECT count(*) FROM defaults;
BEGIN;
COPY defaults (a, b) FROM STDIN;
4	x
5	y
\.
SELECT count(*), sum(twice) FROM defaults;
COPY defaults (a) FROM STDIN;
6
seven
\.
ROLLBACK;
BEGIN;
COPY t FROM STDIN;
31	x	1
\.
SAVEPOINT s;
COPY t FROM STDIN;
32	x	1
33	x	-1
\.
ROLLBACK TO s;
COPY t FROM STDIN;
34	x	1
\.
COMMIT;
COPY p FROM STDIN;
1	0	a
2	39	b
3	17	c
4	0	d
5	5	e
6	6	f
\.
COPY p FROM STDIN;
7	0	a
8	40	no partition
\.
INSERT INTO p SELECT i, i % 40, 'row ' || i FROM generate_series(100, 3000) i;
SELECT tableoid::regclass, count(*) FROM p GROUP BY 1;
COPY p17 FROM STDIN;
9	17	direct
\.
COPY p17 FROM STDIN;
10	18	wrong partition
\.
SELECT count(*), sum(id) FROM p WHERE part IN (3, 17);
COPY (SELECT * FROM t WHERE id < 5 ORDER BY id) TO STDOUT;
COPY t (id) TO STDOUT;
BEGIN;
CREATE TABLE fresh (a int, b text);
COPY fresh FROM STDIN (FREEZE);
1	a
2	b
\.
SELECT count(*) FROM fresh;
TRUNCATE fresh;
COPY fresh FROM STDIN;
3	c
\.
SELECT * FROM fresh;
COMMIT;
SELECT * FROM fresh;
