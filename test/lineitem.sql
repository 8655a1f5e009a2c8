-- lineitem.sql: rows :first to :last of a lineitem table of :rows rows, shaped like TPC-H.
--
-- Row i depends on i and :rows alone, so slices can be filled by several sessions and
-- every run gives the same table.  Orders have 1 to 7 lines (28 rows make 7 orders),
-- order keys are sparse, dates, flags, prices and keys follow the rules of the TPC-H
-- specification (4.2.3), comments are cut out of one pool of generated words.
SET synchronous_commit = off;
WITH const AS MATERIALIZED (
  SELECT array[1,1,1,1,2,3,3,3,3,3,3,3,4,4,4,5,5,5,5,5,5,6,6,7,7,7,7,7] AS order_of,
         array[1,2,3,4,1,1,2,3,4,5,6,7,1,2,3,1,2,3,4,5,6,1,2,1,2,3,4,5] AS line_of,
         greatest(1000, :rows / 30) AS parts,
         greatest(100, :rows / 600) AS suppliers,
         array['DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN']::char(25)[]
           AS instruct,
         array['REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB']::char(10)[] AS mode,
         (SELECT string_agg(word, ' ' ORDER BY n)::bytea
          FROM (SELECT n, (string_to_array(
                  'packages requests accounts deposits foxes ideas theodolites pinto beans '
                  'instructions dependencies excuses platelets asymptotes courts dolphins '
                  'multipliers sauternes warthogs frets dinos attainments somas braids '
                  'furiously slyly carefully blithely quickly fluffily express special final '
                  'regular unusual even bold silent pending ironic sleep wake are cajole haggle '
                  'nag use boost affix detect integrate about above according to across after '
                  'against along among around at before between into the', ' '))
                  [1 + (hashint4extended(n, 0) & 2147483647) % 75] AS word
                FROM generate_series(1, 40000) n) w) AS pool
), numbered AS (
  SELECT (i - 1) / 28 * 7 + order_of[(i - 1) % 28 + 1] - 1 AS o,
         line_of[(i - 1) % 28 + 1] AS line,
         hashint8extended(i, 1) & 9223372036854775807 AS h1,
         hashint8extended(i, 2) & 9223372036854775807 AS h2
  FROM const, generate_series(:first::bigint, :last::bigint) i
), drawn AS (
  SELECT o, line, h1, h2,
         1 + h1 % parts AS part,
         1 + (h1 >> 24) % 50 AS quantity,
         date '1992-01-01' + ((hashint8extended(o, 3) & 2147483647) % 2406)::int AS orderdate,
         (1 + (h2 >> 20) % 121)::int AS ship_days,
         (30 + (h2 >> 28) % 61)::int AS commit_days,
         (1 + (h2 >> 34) % 30)::int AS receipt_days
  FROM const, numbered
)
INSERT INTO lineitem
SELECT o / 8 * 32 + o % 8 + 1,
       part,
       (part + h1 / 1073741824 % 4 * (suppliers / 4 + (part - 1) / suppliers)) % suppliers + 1,
       line,
       quantity,
       quantity * (90000 + part / 10 % 20001 + 100 * (part % 1000)) * 0.01,
       (h1 >> 36) % 11 * 0.01,
       (h1 >> 42) % 9 * 0.01,
       CASE WHEN orderdate + ship_days + receipt_days > '1995-06-17' THEN 'N'
            WHEN h1 & 1 = 0 THEN 'R' ELSE 'A' END,
       CASE WHEN orderdate + ship_days > '1995-06-17' THEN 'O' ELSE 'F' END,
       orderdate + ship_days,
       orderdate + commit_days,
       orderdate + ship_days + receipt_days,
       instruct[1 + (h2 >> 40) % 4],
       mode[1 + (h2 >> 44) % 7],
       encode(substring(pool FROM (1 + h2 % 200000)::int FOR (10 + (h2 >> 50) % 34)::int), 'escape')
FROM const, drawn;
