-- skew as a picture
SET client_min_messages = error;
CREATE TABLE skew_src AS
	SELECT i AS id, CASE WHEN i % 10 < 4 THEN '<big> & "loud"' WHEN i % 10 = 4 THEN NULL
		ELSE 'c' || i % 700 END AS customer
	FROM generate_series(1, 20000) i;
SELECT count(*) FROM shuffle_write('SELECT * FROM skew_src', 'skew_hot', partitions => 16, keys => '{customer}', workers => 0);
SELECT shuffle_skew AS line FROM shuffle_skew('skew_hot');
-- the same sizes as the offset index has, and the same keys as the table
SELECT partition, rows, round(rows / (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY rows)
	FROM shuffle_partitions WHERE relation = 'skew_hot'::regclass)::numeric, 2) AS of_median
FROM shuffle_partitions WHERE relation = 'skew_hot'::regclass ORDER BY rows DESC LIMIT 2;
SELECT customer, round(100.0 * count(*) / sum(count(*)) OVER (), 1) AS share
FROM shuffle_read(NULL::skew_hot, (SELECT partition FROM shuffle_partitions
	WHERE relation = 'skew_hot'::regclass ORDER BY rows DESC LIMIT 1))
GROUP BY customer ORDER BY 2 DESC LIMIT 1;

-- range, several keys, even sizes, empty partitions, a key that is gone
SELECT count(*) FROM shuffle_write('SELECT * FROM skew_src', 'skew_range', partitions => 5, method => 'range',
	keys => '{id,customer}', bounds => '{"(5000,)","(10000,)","(15000,)","(30000,)"}', workers => 0);
SELECT shuffle_skew AS line FROM shuffle_skew('skew_range', 'rows');
ALTER TABLE skew_range DROP COLUMN customer;
SELECT shuffle_skew AS line FROM shuffle_skew('skew_range') LIMIT 2;
-- without keys, in bytes, nothing at all
SELECT count(*) FROM shuffle_write('SELECT * FROM skew_src', 'skew_rr', partitions => 4, codec => 'none', workers => 0);
SELECT count(*) > 8 AS lines FROM shuffle_skew('skew_rr', by => 'bytes');
SELECT count(*) FROM shuffle_write('SELECT * FROM skew_src WHERE false', 'skew_none', partitions => 1);
SELECT shuffle_skew('skew_none');

-- '#' where the client has no block elements
SET client_encoding = 'LATIN1';
SELECT line FROM (SELECT shuffle_skew('skew_range') AS line) s WHERE line LIKE '%#%';
RESET client_encoding;

-- the picture is well-formed: nothing but tags and entities, every element closed, text escaped
CREATE FUNCTION skew_well_formed(svg text) RETURNS boolean LANGUAGE sql AS $$
	SELECT regexp_replace(svg, '</?(svg|title|style|rect|text|line)( [A-Za-z0-9-]+="[^"<>]*")*/?>', '', 'g') !~ '[<>]'
		AND svg !~ '&(?!amp;|lt;|gt;|quot;)'
		AND bool_and((SELECT count(*) FROM regexp_matches(svg, '<' || tag || '[ >][^>]*[^/]>|<' || tag || '>', 'g'))
			= (SELECT count(*) FROM regexp_matches(svg, '</' || tag || '>', 'g')))
	FROM unnest('{svg,title,style,rect,text,line}'::text[]) tag
$$;
SELECT skew_well_formed(shuffle_skew_svg('skew_hot')) AS hot, skew_well_formed(shuffle_skew_svg('skew_range', 'bytes')) AS bytes,
	skew_well_formed(shuffle_skew_svg('skew_none')) AS none,
	shuffle_skew_svg('skew_hot') LIKE '%&lt;big&gt; &amp; &quot;loud&quot;%' AS escaped;
CREATE TABLE "skew <&""> x" AS SELECT 1 AS "<k>";
SELECT count(*) FROM shuffle_write('TABLE "skew <&""> x"', '"skew <&""> y"', partitions => 1000, keys => '{<k>}');
SELECT skew_well_formed(svg), svg ~ '<title>Partitions of skew &lt;&amp;&quot;&gt; y</title>' AS title,
	svg ~ 'by hash \(&lt;k&gt;\)' AS key
FROM shuffle_skew_svg('"skew <&""> y"') svg;
DROP TABLE "skew <&""> x", "skew <&""> y";
-- what XML cannot have at all, and what would end a line
CREATE TABLE skew_odd AS SELECT E'a\x01\x1b\x7fb\nc\td' || U&'\FFFE\FFFF\FFFD' AS k FROM generate_series(1, 100);
SELECT count(*) FROM shuffle_write('TABLE skew_odd', 'skew_odd_s', partitions => 2, keys => '{k}', workers => 0);
SELECT line ~ '  a   b c d' AS key FROM shuffle_skew('skew_odd_s') AS line WHERE line ~ '100.0%';
SELECT strpos(svg, U&'>a???b c d??\FFFD (100.0%)<') > 0 AS odd, skew_well_formed(svg) FROM shuffle_skew_svg('skew_odd_s') svg;
DROP TABLE skew_odd, skew_odd_s;
DROP FUNCTION skew_well_formed;

-- refused
SELECT shuffle_skew('skew_src');
SELECT shuffle_skew('skew_hot', 'weight');
CREATE ROLE regress_skew_reader;
GRANT SELECT (id) ON skew_hot TO regress_skew_reader;
GRANT SELECT ON skew_range, skew_rr TO regress_skew_reader;
ALTER TABLE skew_rr ENABLE ROW LEVEL SECURITY;
SET ROLE regress_skew_reader;
SELECT shuffle_skew('skew_hot');
SELECT shuffle_skew_svg('skew_hot');
SELECT shuffle_skew('skew_rr');
SELECT count(*) > 5 AS lines FROM shuffle_skew('skew_range');
RESET ROLE;

DROP TABLE skew_src, skew_hot, skew_range, skew_rr, skew_none;
DROP ROLE regress_skew_reader;
