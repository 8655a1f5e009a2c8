/* shuffle_ext--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION shuffle_ext" to load this file. \quit

--
-- Catalog: one row per published segment
--

--
-- Table access method
--

--
-- Writing
--

-- The aggregate that shuffle_write runs over its query; it cannot be called otherwise.
-- Moving a row into its partition costs much more than an operator: the planner must know
-- to choose parallel plans.
CREATE FUNCTION shuffle_sink_transition(internal, bytea)
RETURNS internal
AS 'MODULE_PATHNAME' LANGUAGE C PARALLEL SAFE COST 100;

CREATE FUNCTION shuffle_sink_transition(internal, bytea, VARIADIC "any")
RETURNS internal
AS 'MODULE_PATHNAME' LANGUAGE C PARALLEL SAFE COST 100;

CREATE FUNCTION shuffle_sink_row_transition(internal, bytea, record)
RETURNS internal
AS 'MODULE_PATHNAME' LANGUAGE C PARALLEL SAFE COST 100;

CREATE FUNCTION shuffle_sink_combine(internal, internal)
RETURNS internal
AS 'MODULE_PATHNAME' LANGUAGE C PARALLEL SAFE;

CREATE FUNCTION shuffle_sink_serialize(internal)
RETURNS bytea
AS 'MODULE_PATHNAME' LANGUAGE C STRICT PARALLEL SAFE;

CREATE FUNCTION shuffle_sink_deserialize(bytea, internal)
RETURNS internal
AS 'MODULE_PATHNAME' LANGUAGE C STRICT PARALLEL SAFE;

CREATE FUNCTION shuffle_sink_final(internal)
RETURNS bytea
AS 'MODULE_PATHNAME' LANGUAGE C PARALLEL SAFE;

CREATE AGGREGATE shuffle_sink(job bytea) (
	SFUNC = shuffle_sink_transition,
	STYPE = internal,
	FINALFUNC = shuffle_sink_final,
	FINALFUNC_MODIFY = READ_WRITE,
	COMBINEFUNC = shuffle_sink_combine,
	SERIALFUNC = shuffle_sink_serialize,
	DESERIALFUNC = shuffle_sink_deserialize,
	PARALLEL = SAFE
);

CREATE AGGREGATE shuffle_sink(job bytea, VARIADIC columns "any") (
	SFUNC = shuffle_sink_transition,
	STYPE = internal,
	FINALFUNC = shuffle_sink_final,
	FINALFUNC_MODIFY = READ_WRITE,
	COMBINEFUNC = shuffle_sink_combine,
	SERIALFUNC = shuffle_sink_serialize,
	DESERIALFUNC = shuffle_sink_deserialize,
	PARALLEL = SAFE
);

CREATE AGGREGATE shuffle_sink_row(job bytea, columns record) (
	SFUNC = shuffle_sink_row_transition,
	STYPE = internal,
	FINALFUNC = shuffle_sink_final,
	FINALFUNC_MODIFY = READ_WRITE,
	COMBINEFUNC = shuffle_sink_combine,
	SERIALFUNC = shuffle_sink_serialize,
	DESERIALFUNC = shuffle_sink_deserialize,
	PARALLEL = SAFE
);

COMMENT ON AGGREGATE shuffle_sink(bytea) IS 'internal to shuffle_write';
COMMENT ON AGGREGATE shuffle_sink(bytea, VARIADIC "any") IS 'internal to shuffle_write';
COMMENT ON AGGREGATE shuffle_sink_row(bytea, record) IS 'internal to shuffle_write';

CREATE FUNCTION shuffle_write(
	query text,
	target text,
	partitions integer DEFAULT NULL,
	keys text[] DEFAULT NULL,
	method text DEFAULT NULL,
	bounds text[] DEFAULT NULL,
	hash text DEFAULT NULL,
	layout text DEFAULT NULL,
	codec text DEFAULT NULL,
	types text DEFAULT NULL,
	unrepresentable text DEFAULT NULL,
	if_exists text DEFAULT NULL,
	workers integer DEFAULT NULL)
RETURNS TABLE (
	partition integer,
	rows bigint,
	bytes bigint,
	raw_bytes bigint,
	blocks integer,
	segments integer)
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000 ROWS 200;

COMMENT ON FUNCTION shuffle_write(text, text, integer, text[], text, text[], text, text, text,
	text, text, text, integer) IS
	'runs a query once and writes its rows, partitioned and compressed, into a shuffle table; returns one row per partition: rows, bytes stored, bytes before compression, blocks, segments';

--
-- Reading
--

--
-- Views: the offset index
--

--
-- Maintenance
--
