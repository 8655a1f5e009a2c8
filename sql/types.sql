--
-- types: every type survives the way into a shuffle table and back
--
-- The heap table is the expectation.  Rows are compared as bytes (record_image_ne), which
-- sees a lost sign of zero, a changed display scale or a missing blank, and as text.
--
CREATE SCHEMA types;
SET search_path = types, public;

-- rows that one table has and the other has not, or has differently
CREATE FUNCTION diff(expected text, actual text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM %s want FULL JOIN %s got ON want.id = got.id '
				   'WHERE want.id IS NULL OR got.id IS NULL OR want *<> got OR want::text <> got::text',
				   expected, actual) INTO n;
	RETURN n;
END $$;

--
-- All types with their edge values: row i holds the value i modulo 10 of each list, NULL
-- behind its end.
--
CREATE TYPE types_mood AS ENUM ('sad', 'ok', 'happy', 'with space: and "quotes"', 'ü');
CREATE DOMAIN types_cents AS numeric(10,2);
CREATE DOMAIN types_word AS varchar(20) CHECK (VALUE <> 'forbidden');
CREATE DOMAIN types_ints AS int[];
CREATE TYPE types_pair AS (a int, gone text, b text, c types_cents);
ALTER TYPE types_pair DROP ATTRIBUTE gone;
CREATE TYPE types_deep AS (p types_pair, list types_pair[], words text[], n numeric, m types_mood, j jsonb, w types_word);
CREATE TYPE types_empty AS ();
CREATE DOMAIN types_pair_domain AS types_pair;
CREATE TYPE types_floatrange AS RANGE (subtype = float8);
CREATE TYPE types_oidrange AS RANGE (subtype = regclass, subtype_opclass = oid_ops);

CREATE VIEW types_source AS
SELECT i AS id,
	(ARRAY[true, false])[k] AS c_bool,
	(ARRAY[0, -32768, 32767, -1])[k]::int2 AS c_int2,
	(ARRAY[0, -2147483648, 2147483647, -1])[k]::int4 AS c_int4,
	(ARRAY[0, -9223372036854775808, 9223372036854775807, -1])[k]::int8 AS c_int8,
	(ARRAY['0', '-0', 'NaN', 'Infinity', '-Infinity', '1e-45', '3.4028235e38', '0.1'])[k]::float4 AS c_float4,
	(ARRAY['0', '-0', 'NaN', 'Infinity', '-Infinity', '5e-324', '1.7976931348623157e308', '0.1'])[k]::float8 AS c_float8,
	(ARRAY['0', '4294967295', '1259'])[k]::oid AS c_oid,
	(ARRAY['0', '4294967295', '3'])[k]::xid AS c_xid,
	(ARRAY['0', '18446744073709551615', '3'])[k]::xid8 AS c_xid8,
	(ARRAY['0', '4294967295', '3'])[k]::cid AS c_cid,
	('{pg_class,pg_type,0,4294967295}'::regclass[])[k] AS c_regclass,
	('{int4,text,types_mood}'::regtype[])[k] AS c_regtype,
	('{upper(text),now(),0}'::regprocedure[])[k] AS c_regprocedure,
	(ARRAY['(0,1)', '(4294967295,65535)'])[k]::tid AS c_tid,
	(ARRAY['0/0', 'FFFFFFFF/FFFFFFFF'])[k]::pg_lsn AS c_lsn,
	(ARRAY['0', '-92233720368547758.08', '92233720368547758.07', '1234.56'])[k]::money AS c_money,
	(ARRAY['2000-01-01', '1970-01-01', '4713-11-24 BC', '5874897-12-31', '0001-01-01', '1969-12-31'])[k]::date AS c_date,
	(ARRAY['00:00:00', '23:59:59.999999', '12:34:56.000001'])[k]::time AS c_time,
	(ARRAY['00:00:00', '23:59:59.99', '12:34:56.01'])[k]::time(2) AS c_time2,
	(ARRAY['2000-01-01', '1970-01-01', '4713-11-24 BC', '294246-12-31 23:59:59.999999', '1999-12-31 23:59:59.999999'])[k]::timestamp AS c_timestamp,
	(ARRAY['2000-01-01 00:00+00', '1970-01-01 00:00+14', '4713-11-25 00:00+00 BC', '294246-12-31 23:59:59.999999+00'])[k]::timestamptz AS c_timestamptz,
	(ARRAY['00:00:00+00', '24:00:00-15:59', '12:34:56.000001+05:30'])[k]::timetz AS c_timetz,
	(ARRAY['0', '1 year -2 days 3.000001 sec', '-178000000 years', '9223372036 seconds', '-9223372036 seconds', '1 mon -30 days'])[k]::interval AS c_interval,
	(ARRAY['0', '0.00', '99999999.99', '-99999999.99', '0.01', '-0.01', '10000.00', '1234.50'])[k]::numeric(10,2) AS c_numeric_10_2,
	(ARRAY['0', '1', '-9', '9'])[k]::numeric(1,0) AS c_numeric_1_0,
	(ARRAY['0', '99999999999999999999999999999999999999', '-99999999999999999999999999999999999999', '10000000000000000', '18446744073709551616'])[k]::numeric(38,0) AS c_numeric_38_0,
	(ARRAY['0', '0.99999999999999999999999999999999999999', '-0.00000000000000000000000000000000000001', '0.5'])[k]::numeric(38,38) AS c_numeric_38_38,
	(ARRAY['0', '1234567890123456.789', '-1234567890123456.789', '0.001', '1000'])[k]::numeric(19,3) AS c_numeric_19_3,
	(ARRAY['0', 'NaN', '1e-1000', '1.000', '-12345678901234567890123456789012345678901234567890.5', '1e500', 'Infinity'])[k]::numeric AS c_numeric,
	(ARRAY['0', 'NaN', '1.5', '-1234567890123456789012345678901234567890'])[k]::numeric(50,5) AS c_numeric_50_5,
	(ARRAY['0', '1200', '-99900', 'NaN'])[k]::numeric(3,-2) AS c_numeric_neg_scale,
	(ARRAY['', 'a', 'ü€😀', repeat('long ', 40), repeat('x', 126), repeat('y', 127), repeat('compressible', 2000), (SELECT string_agg(md5(g::text), '') FROM generate_series(1, 200) g), e'tab\tnew\nline\\'])[k] AS c_text,
	(ARRAY['', 'a', 'ü€😀', 'trailing  '])[k]::varchar(30) AS c_varchar,
	(ARRAY['', 'a', 'ü€😀', 'full    12'])[k]::char(10) AS c_bpchar,
	(ARRAY['', 'a', 'z', '~'])[k]::"char" AS c_char,
	(ARRAY['', 'pg_class', repeat('n', 63)])[k]::name AS c_name,
	(ARRAY['\x', '\x00', '\xff00ff', '\x' || repeat('ab', 5000)])[k]::bytea AS c_bytea,
	(ARRAY['null', '{"b": 1,  "a": [1.0, 1.00, "ü", null]}', '[]', '"x"'])[k]::json AS c_json,
	(ARRAY['null', '{"b": 1,  "a": [1.0, 1.00, "ü", null, true, 1e10]}', '[]', '{}', '"x"', '12345678901234567890.0'])[k]::jsonb AS c_jsonb,
	(ARRAY['$.a[*] ? (@ > 1)', 'strict $'])[k]::jsonpath AS c_jsonpath,
	(ARRAY['00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'])[k]::uuid AS c_uuid,
	(ARRAY['sad', 'ok', 'happy', 'with space: and "quotes"', 'ü'])[k]::types_mood AS c_enum,
	(ARRAY['0', '99999999.99', '-0.01'])[k]::types_cents AS c_domain_cents,
	(ARRAY['', 'word'])[k]::types_word AS c_domain_word,
	(ARRAY['{}', '{1,NULL,3}'])[k]::types_ints AS c_domain_ints,
	(ARRAY['0.0.0.0', '192.168.0.1/24', '::1', '2001:db8::/32'])[k]::inet AS c_inet,
	(ARRAY['0.0.0.0/0', '192.168.0.0/24', '::/0'])[k]::cidr AS c_cidr,
	(ARRAY['00:00:00:00:00:00', 'ff:ff:ff:ff:ff:ff'])[k]::macaddr AS c_macaddr,
	(ARRAY['00:00:00:00:00:00:00:00', 'ff:ff:ff:ff:ff:ff:ff:ff'])[k]::macaddr8 AS c_macaddr8,
	(ARRAY['101', '000', '111'])[k]::bit(3) AS c_bit,
	(ARRAY['', '1', '010101'])[k]::varbit(10) AS c_varbit,
	(ARRAY['(0,-0)', '(1e-300,NaN)', '(Infinity,0.1)'])[k]::point AS c_point,
	(ARRAY['{1,2,3}', '{0.1,-1,0}'])[k]::line AS c_line,
	(ARRAY['[(0,0),(1,1)]'])[k]::lseg AS c_lseg,
	(ARRAY['(1,1),(0,0)'])[k]::box AS c_box,
	(ARRAY['[(0,0),(1,1)]', '((0,0),(1,1),(2,0))'])[k]::path AS c_path,
	(ARRAY['((0,0),(1,1),(2,0))'])[k]::polygon AS c_polygon,
	(ARRAY['<(0,0),1.1>'])[k]::circle AS c_circle,
	(ARRAY['', 'a:1A b:2', '''with space'':3'])[k]::tsvector AS c_tsvector,
	(ARRAY['', 'a & !b', 'a <2> b | c:*'])[k]::tsquery AS c_tsquery,
	(ARRAY['empty', '[1,5)', '(,)'])[k]::int4range AS c_int4range,
	(ARRAY['empty', '[1.10,5)', '(,7]'])[k]::numrange AS c_numrange,
	(ARRAY['empty', '["2000-01-01 00:00:00.000001",infinity)', '(,)'])[k]::tsrange AS c_tsrange,
	(ARRAY['empty', '["2000-01-01 00:00:00+14",)', '(,)'])[k]::tstzrange AS c_tstzrange,
	(ARRAY['empty', '[0.1,0.30000000000000004)'])[k]::types_floatrange AS c_floatrange,
	(ARRAY['empty', '(,pg_class]'])[k]::types_oidrange AS c_oidrange,
	(ARRAY['{}', '{[1,3),[5,9)}'])[k]::int4multirange AS c_int4multirange,
	(ARRAY['1 2 3', ''])[k]::int2vector AS c_int2vector,
	(ARRAY['1 2 4294967295', ''])[k]::oidvector AS c_oidvector,
	(ARRAY['{}', '{1}', '{NULL}', '{1,NULL,-3}', '{1,2,3,4,5}'])[k]::int2[] AS c_int2s,
	(ARRAY['{}', '{1}', '{NULL}', '{1,NULL,-3}', '{1,2,3,4,5}'])[k]::int4[] AS c_int4s,
	(ARRAY['{}', '{1}', '{1,2,3,4,5}'])[k]::int8[] AS c_int8s,
	(ARRAY['{}', '{t}', '{t,f,NULL,t,f,t,f,t,f,t}'])[k]::bool[] AS c_bools,
	(ARRAY['{}', '{NaN}', '{0.1,-0,NULL}'])[k]::float8[] AS c_float8s,
	(ARRAY['{}', '{0}', '{1.23,NULL,-99999999.99}'])[k]::numeric(10,2)[] AS c_numerics,
	(ARRAY['{}', '{0}', '{1.230,NaN,NULL}'])[k]::numeric[] AS c_numerics_free,
	(ARRAY['{}', '{""}', '{a,NULL,"b c"}', '{' || repeat('long ', 100) || ',x}', '{' || repeat('compressible', 2000) || '}'])[k]::text[] AS c_texts,
	(ARRAY['{}', '{""}', '{a,NULL,"b c"}'])[k]::char(5)[] AS c_bpchars,
	(ARRAY['{}', '{2000-01-01,NULL}'])[k]::date[] AS c_dates,
	(ARRAY['{}', '{2000-01-01 00:00:00+00,NULL}'])[k]::timestamptz[] AS c_timestamptzs,
	(ARRAY['{}', '{1 day,NULL}'])[k]::interval[] AS c_intervals,
	(ARRAY['{}', '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}'])[k]::uuid[] AS c_uuids,
	(ARRAY['{}', '{sad,NULL,ü}'])[k]::types_mood[] AS c_enums,
	(ARRAY['{}', '{1.00,NULL}'])[k]::types_cents[] AS c_domains,
	(ARRAY['{}', '{10.0.0.1,NULL,::1}'])[k]::inet[] AS c_inets,
	(ARRAY['{}', '{"{\"a\": 1}",NULL}'])[k]::jsonb[] AS c_jsonbs,
	(ARRAY['{}', '{pg_class,NULL}'])[k]::name[] AS c_names,
	(ARRAY['{}', '{"\\x00","\\x"}'])[k]::bytea[] AS c_byteas,
	(ARRAY['{}', '{"{1,2}",NULL,"{}"}'])[k]::types_ints[] AS c_nested_arrays,
	(ARRAY['(1,x,2.50)', '(,,)', '(-1,"quoted "" text",0)'])[k]::types_pair AS c_pair,
	(ARRAY['(1,x,2.50)', '(,,)'])[k]::types_pair_domain AS c_pair_domain,
	(ARRAY['{}', '{"(1,x,2.50)",NULL,"(,,)"}'])[k]::types_pair[] AS c_pairs,
	(ARRAY[ROW(ROW(1, 'x', 2.5), ARRAY[ROW(2, NULL, 3), NULL]::types_pair[], ARRAY['a', NULL, repeat('toast', 2000)], 'NaN', 'ok', '{"k": 1}', 'w')::types_deep,
		ROW(NULL, NULL, NULL, NULL, NULL, NULL, NULL)::types_deep,
		ROW(ROW(NULL, '', 0), '{}', '{}', 1.10, 'ü', '[]', '')::types_deep])[k] AS c_deep,
	(ARRAY[ROW()::types_empty])[k] AS c_empty
FROM (SELECT i, 1 + i % 10 AS k FROM generate_series(1, 300) i) q;

CREATE TABLE types_heap AS SELECT * FROM types_source;
SELECT count(*) FROM types_heap;

-- Input and output functions must not depend on the session: write under one set of
-- settings, read under another.
SET client_min_messages = warning;	-- small blocks
SET shuffle_ext.block_rows = 16;	-- several blocks per partition
SET parallel_leader_participation = off;
CREATE FUNCTION write_and_compare(types text, codec text, layout text, workers int)
RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('DateStyle', 'German, DMY', true),
		set_config('IntervalStyle', 'iso_8601', true),
		set_config('extra_float_digits', '-10', true),
		set_config('bytea_output', 'escape', true),
		set_config('TimeZone', 'Asia/Tokyo', true);
	DROP TABLE IF EXISTS types_shuffle;
	PERFORM shuffle_write('SELECT * FROM types_heap', 'types_shuffle', partitions => 7,
						  keys => '{id}', types => types, codec => codec, layout => layout,
						  workers => workers);
	PERFORM set_config('DateStyle', 'ISO, MDY', true),
		set_config('IntervalStyle', 'postgres', true),
		set_config('extra_float_digits', '1', true),
		set_config('bytea_output', 'hex', true),
		set_config('TimeZone', 'America/New_York', true);
	RETURN diff('types_heap', 'types_shuffle');
END $$;
SELECT t AS types, c AS codec, l AS layout, w AS workers, write_and_compare(t, c, l, w) AS differences
FROM unnest('{arrow,arrow_ext,native}'::text[]) t, unnest('{none,lz4,zstd}'::text[]) c,
	unnest('{log,partition_files}'::text[]) l, unnest('{0,2}'::int[]) w
ORDER BY 1, 2, 3, 4;
SELECT write_and_compare('arrow', 'lz4', 'log', 2);

-- the comparison sees a difference
UPDATE types_heap SET c_numeric_10_2 = 1 WHERE id = 17;
UPDATE types_heap SET c_float8 = -c_float8 WHERE c_float8 = 0 AND id = 10;
DELETE FROM types_heap WHERE id = 20;
SELECT diff('types_heap', 'types_shuffle');

-- settings are as they were, also after an error in the middle of a row
SET DateStyle = 'German, DMY';
SET TimeZone = 'Asia/Tokyo';
SET extra_float_digits = -10;
SELECT shuffle_write($$SELECT timetz '12:00+00', date 'infinity' AS d$$, 'failed');
SHOW DateStyle;
SHOW TimeZone;
SHOW extra_float_digits;
RESET DateStyle;
RESET TimeZone;
RESET extra_float_digits;
RESET shuffle_ext.block_rows;

-- no NOTICE per empty tsquery on reading
SET client_min_messages = notice;
SELECT count(c_tsquery) FROM types_shuffle;
SET client_min_messages = warning;

-- xml, where the server has it
DO $$
BEGIN
	CREATE TABLE xml_heap AS
	SELECT i AS id, (ARRAY['<a>ü</a>', 'text <b/>', '<?xml version="1.0" encoding="latin1"?><a/>'])[i]::xml AS x
	FROM generate_series(1, 4) i;
	PERFORM shuffle_write('SELECT * FROM xml_heap', 'xml_shuffle', partitions => 1);
	IF diff('xml_heap', 'xml_shuffle') <> 0 THEN
		RAISE 'xml differs';
	END IF;
EXCEPTION WHEN feature_not_supported THEN
	NULL;
END $$;

--
-- numeric: all 779 Decimal128 types, the digits of each a function of the row
--
CREATE FUNCTION decimals(p int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	DROP TABLE IF EXISTS decimals_heap, decimals_shuffle;
	EXECUTE (
		SELECT 'CREATE TABLE decimals_heap AS SELECT i AS id, ' ||
			string_agg(format('(sign || left(whole, least(%s, i - 1)) || ''.'' || left(fraction, least(%s, 40 - i)))'
							  '::numeric(%s,%2$s) AS s%2$s', p - s, s, p), ', ') ||
			' FROM (SELECT i, CASE WHEN i % 2 = 0 THEN ''-0'' ELSE ''0'' END AS sign,
					translate(substr(md5(i::text) || md5(i::text || ''y''), 1 + i % 9), ''abcdef'', ''990009'') AS whole,
					translate(md5(i::text || ''z'') || md5(i::text), ''abcdef'', ''990000'') AS fraction
				FROM generate_series(1, 40) i) q'
		FROM generate_series(0, p) s);
	PERFORM shuffle_write('SELECT * FROM decimals_heap', 'decimals_shuffle', partitions => 1);
	RETURN diff('decimals_heap', 'decimals_shuffle');
END $$;
SELECT sum(p + 1) AS types, sum(decimals(p)) AS differences FROM generate_series(1, 38) p;
SELECT s0, s1, s19, s38 FROM decimals_heap WHERE id IN (1, 2, 20, 39) ORDER BY id;

--
-- Values without an exact Arrow form
--
CREATE TYPE types_event AS (what text, day date);
CREATE TABLE special_heap AS
SELECT i AS id, (ARRAY['infinity', '-infinity', '2000-01-01'])[i]::date AS d,
	(ARRAY['infinity', '-infinity', '294276-12-31 23:59:59.999999'])[i]::timestamp AS ts,
	(ARRAY['infinity', '-infinity', '294276-12-31 23:59:59.999999+00'])[i]::timestamptz AS tz,
	(ARRAY['24:00:00', '12:00:00'])[i]::time AS t,
	(ARRAY['NaN', '1.50'])[i]::numeric(5,2) AS n,
	(ARRAY['9223372037 sec', '-9223372037 sec', '1 day'])[i]::interval AS iv,
	(ARRAY['{{1,2},{3,4}}', '[0:1]={1,2}', '{1,2}'])[i]::int[] AS a,
	(ARRAY['{infinity,2000-01-01}', '{NULL}'])[i]::date[] AS ad,
	(ARRAY['(x,infinity)', '(y,2000-01-01)'])[i]::types_event AS c
FROM generate_series(1, 3) i;
SELECT shuffle_write('SELECT d FROM special_heap', 'failed', workers => 0);
SELECT shuffle_write('SELECT ts FROM special_heap', 'failed', workers => 0);
SELECT shuffle_write('SELECT ts FROM special_heap WHERE id = 3', 'failed', workers => 0);
SELECT shuffle_write('SELECT tz FROM special_heap', 'failed', workers => 0);
SELECT shuffle_write('SELECT t FROM special_heap', 'failed', workers => 0);
SELECT shuffle_write('SELECT n FROM special_heap', 'failed', workers => 0);
SELECT shuffle_write('SELECT iv FROM special_heap', 'failed', workers => 0);
SELECT shuffle_write('SELECT iv FROM special_heap WHERE id = 2', 'failed', workers => 0);
SELECT shuffle_write('SELECT a FROM special_heap', 'failed', workers => 0);
SELECT shuffle_write('SELECT a FROM special_heap WHERE id = 2', 'failed', workers => 0);
SELECT shuffle_write('SELECT ad FROM special_heap', 'failed', workers => 0);
SELECT shuffle_write('SELECT c FROM special_heap', 'failed', workers => 0);

-- NULL on request, while the rest of the row and of a nested value stays
SELECT sum(rows) FROM shuffle_write('SELECT * FROM special_heap', 'special_null', partitions => 1, unrepresentable => 'null');
SELECT * FROM special_null ORDER BY id;

-- lossless in native
SELECT sum(rows) FROM shuffle_write('SELECT * FROM special_heap', 'special_native', partitions => 1, types => 'native');
SELECT diff('special_heap', 'special_native');

-- no text form that could be read again
SELECT shuffle_write('SELECT adbin FROM pg_attrdef', 'failed');	-- even without rows
SELECT count(*) FROM shuffle_write('SELECT ev_class, rulename, ev_action FROM pg_rewrite', 'nodes',
								   partitions => 1, types => 'native');
SELECT count(*) FROM pg_rewrite r FULL JOIN nodes n USING (ev_class, rulename)
WHERE r.ev_action::text IS DISTINCT FROM n.ev_action::text;

-- pseudo-types
SELECT shuffle_write('SELECT ROW(1, 2) AS r', 'failed');

-- 32 levels below a column, and one too many
DO $$
DECLARE
	v text := '7';
BEGIN
	EXECUTE 'CREATE TYPE level_1 AS (v int)';
	FOR i IN 2..33 LOOP
		EXECUTE format('CREATE TYPE level_%s AS (v level_%s)', i, i - 1);
	END LOOP;
	FOR i IN 1..32 LOOP
		v := 'ROW(' || v || ')::level_' || i;
	END LOOP;
	EXECUTE 'CREATE TABLE deep_heap AS SELECT 1 AS id, ' || v || ' AS v';
END $$;
SELECT sum(rows) FROM shuffle_write('SELECT * FROM deep_heap', 'deep_shuffle', partitions => 1);
SELECT count(*) FROM deep_heap want, deep_shuffle got WHERE want *= got;
SELECT shuffle_write('SELECT NULL::level_33 AS v', 'failed');

--
-- Types that change without a rewrite: old segments stay as they are, new ones come
-- beside them
--
SET TimeZone = 'UTC';
CREATE TYPE colour AS ENUM ('red', 'green');
CREATE DOMAIN counted AS int;
CREATE TYPE pair AS (x int, y text);
CREATE TABLE alter_heap AS
SELECT g AS id, ('v' || g)::varchar(10) AS v_wider, ('v' || g)::varchar(10) AS v_text,
	(g / 3.0)::numeric(10,2) AS n_wider, (g / 7.0)::numeric(10,2) AS n_free, g AS i_oid,
	'pg_class'::regclass AS r_oid, g::counted AS d_base, g AS i_domain, g::oid AS oid_i,
	timestamptz '2000-01-01 00:00+00' + g * interval '1 hour' AS tz_ts,
	timestamp '2000-01-01 00:00' + g * interval '1 hour' AS ts_tz, '10.0.0.0/8'::cidr AS cidr_inet,
	B'101'::bit(3) AS bit_varbit, timestamp(3) '2000-01-01 00:00:00.123' AS ts_wider,
	time(2) '00:00:00.12' AS t_wider, interval(2) '1.23 sec' AS iv_wider, B'01'::varbit(7) AS vb_wider,
	(ARRAY['red', 'green'])[1 + g % 2]::colour AS m, '{red,NULL,green}'::colour[] AS ms,
	ROW(g, 'y' || g)::pair AS p, ARRAY[ROW(g, 'y')::pair, NULL] AS ps, 'dropped ' || g AS gone
FROM generate_series(1, 20) g;
SELECT sum(rows) FROM shuffle_write('SELECT * FROM alter_heap', 'alter_arrow', partitions => 2);
SELECT sum(rows) FROM shuffle_write('SELECT * FROM alter_heap', 'alter_native', partitions => 2, types => 'native');

-- runs a command on all three, compares, appends two rows, compares
CREATE FUNCTION alter_all(command text, OUT rewritten boolean, OUT arrow bigint, OUT native bigint,
						  OUT arrow_appended bigint, OUT native_appended bigint)
LANGUAGE plpgsql AS $$
DECLARE
	storage oid := pg_relation_filenode('alter_arrow');
	last int := (SELECT max(id) FROM alter_heap);
BEGIN
	EXECUTE 'ALTER TABLE alter_heap ' || command;
	EXECUTE 'ALTER TABLE alter_arrow ' || command;
	EXECUTE 'ALTER TABLE alter_native ' || command;
	rewritten := storage <> pg_relation_filenode('alter_arrow');
	arrow := diff('alter_heap', 'alter_arrow');
	native := diff('alter_heap', 'alter_native');
	CREATE TEMP TABLE fresh ON COMMIT DROP AS SELECT * FROM alter_heap h WHERE h.id IN (3, 4);
	UPDATE fresh SET id = id + last;
	INSERT INTO alter_heap SELECT * FROM fresh;
	PERFORM shuffle_write('SELECT * FROM fresh', 'alter_arrow', if_exists => 'append');
	PERFORM shuffle_write('SELECT * FROM fresh', 'alter_native', if_exists => 'append');
	arrow_appended := diff('alter_heap', 'alter_arrow');
	native_appended := diff('alter_heap', 'alter_native');
END $$;
SELECT * FROM alter_all('ALTER v_wider TYPE varchar(20), ALTER v_text TYPE text');
SELECT * FROM alter_all('ALTER n_wider TYPE numeric(20,2), ALTER n_free TYPE numeric');
SELECT * FROM alter_all('ALTER i_oid TYPE oid, ALTER r_oid TYPE oid, ALTER oid_i TYPE int');
SELECT * FROM alter_all('ALTER i_oid TYPE regclass');
SELECT * FROM alter_all('ALTER d_base TYPE int, ALTER i_domain TYPE counted');
SELECT * FROM alter_all('ALTER tz_ts TYPE timestamp, ALTER ts_tz TYPE timestamptz');
SELECT * FROM alter_all('ALTER cidr_inet TYPE inet, ALTER bit_varbit TYPE varbit');
SELECT * FROM alter_all('ALTER ts_wider TYPE timestamp(6), ALTER t_wider TYPE time, ALTER iv_wider TYPE interval, '
						'ALTER vb_wider TYPE varbit(9)');
SELECT * FROM alter_all('DROP gone, ADD added int, ADD with_default text DEFAULT ''default'', '
						'ADD n_default numeric DEFAULT 1.50');
SELECT * FROM alter_all('RENAME v_text TO renamed');

-- enum labels renamed, their old name given to another value, and new ones
ALTER TYPE colour RENAME VALUE 'red' TO 'rouge';
ALTER TYPE colour ADD VALUE 'red' BEFORE 'rouge';
ALTER TYPE colour ADD VALUE 'blue';
SELECT diff('alter_heap', 'alter_arrow') AS arrow, diff('alter_heap', 'alter_native') AS native;
CREATE TABLE fresh_colours AS SELECT * FROM alter_heap WHERE id IN (3, 4);
UPDATE fresh_colours SET id = id + 1000, m = 'red' WHERE id = 3;
UPDATE fresh_colours SET id = id + 1000, m = 'blue', ms = '{blue,red,rouge}' WHERE id = 4;
INSERT INTO alter_heap SELECT * FROM fresh_colours;
SELECT sum(rows) FROM shuffle_write('SELECT * FROM fresh_colours', 'alter_arrow', if_exists => 'append');
SELECT sum(rows) FROM shuffle_write('SELECT * FROM fresh_colours', 'alter_native', if_exists => 'append');
SELECT diff('alter_heap', 'alter_arrow') AS arrow, diff('alter_heap', 'alter_native') AS native;
SELECT m, count(*) FROM alter_heap GROUP BY m ORDER BY m;
SELECT m, count(*) FROM alter_arrow GROUP BY m ORDER BY m;

-- attributes of a composite type added, dropped and renamed: compared as text, because a
-- stored row keeps its number of attributes
ALTER TYPE pair ADD ATTRIBUTE z date;
ALTER TYPE pair DROP ATTRIBUTE x;
ALTER TYPE pair RENAME ATTRIBUTE y TO yy;
CREATE FUNCTION text_diff(expected text, actual text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM %s e FULL JOIN %s a USING (id) WHERE e::text IS DISTINCT FROM a::text',
				   expected, actual) INTO n;
	RETURN n;
END $$;
SELECT text_diff('alter_heap', 'alter_arrow') AS arrow, text_diff('alter_heap', 'alter_native') AS native;

-- a rewrite brings all segments to the present types
SELECT sum(rows) FROM shuffle_write('TABLE alter_arrow', 'alter_arrow', if_exists => 'replace');
SELECT sum(rows) FROM shuffle_write('TABLE alter_native', 'alter_native', if_exists => 'replace');
SELECT text_diff('alter_heap', 'alter_arrow') AS arrow, text_diff('alter_heap', 'alter_native') AS native;

-- anything else is refused: the server would have rewritten the table
CREATE TABLE changed_heap AS SELECT 1 AS id, 2 AS i, 'text' AS t;
SELECT sum(rows) FROM shuffle_write('SELECT * FROM changed_heap', 'changed', partitions => 1);
UPDATE pg_attribute SET (atttypid, attlen, attbyval, attalign, attstorage, attcollation) =
	(SELECT oid, typlen, typbyval, typalign, typstorage, typcollation FROM pg_type WHERE oid = 'int4'::regtype)
WHERE attrelid = 'changed'::regclass AND attname = 't';
SELECT id, i FROM changed;
SELECT t FROM changed;
UPDATE pg_attribute SET atttypid = 'date'::regtype WHERE attrelid = 'changed'::regclass AND attname = 'i';
SELECT id FROM changed;
SELECT i FROM changed;

--
-- Small decimals in numbers: those of every scale come from a table, beside NULLs, negative
-- and large ones, and inside arrays
--
CREATE TABLE types_small AS
SELECT i AS id, v.*, CASE WHEN i % 7 > 0 THEN v.d2 END AS gaps,
	ARRAY[v.d1, NULL, v.d1 + 1]::numeric(9,1)[] AS list
FROM generate_series(1, 20000) i, LATERAL (VALUES (
	(i % 9000 - 200)::numeric(9,0), ((i % 9000 - 200) / 1e1)::numeric(9,1),
	((i % 9000 - 200) / 1e2)::numeric(9,2), ((i % 9000 - 200) / 1e3)::numeric(9,3),
	((i % 9000 - 200) / 1e4)::numeric(9,4), ((i % 9000 - 200) / 1e9)::numeric(28,9))) v(d0, d1, d2, d3, d4, d9);
SELECT sum(rows) AS rows FROM shuffle_write('SELECT * FROM types_small', 'types_small_shuffle');
SELECT diff('types_small', 'types_small_shuffle');

DROP SCHEMA types CASCADE;
