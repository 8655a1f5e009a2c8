/* shuffle_ext--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION shuffle_ext" to load this file. \quit

-- A dump labels tables in the session that has just made the extension.
LOAD 'MODULE_PATHNAME';

--
-- Catalog: one row per published segment
--
-- Keyed by the storage of a relation as pg_class names it (reltablespace, 0 for the
-- database's default, and relfilenode).  Never dumped: the rows of shuffle tables are.
--
CREATE TABLE shuffle_segment (
	tablespace oid NOT NULL,
	filenumber oid NOT NULL,
	number int4 NOT NULL,
	partitions int4 NOT NULL,
	id uuid NOT NULL,
	rows int8 NOT NULL,
	bytes int8 NOT NULL,
	raw_bytes int8 NOT NULL,
	blocks int8 NOT NULL,
	files int8 NOT NULL,
	nextents int4 NOT NULL,
	written timestamptz NOT NULL,
	metrics int8[],
	layout text NOT NULL,
	root text NOT NULL,
	name text NOT NULL,
	routing text NOT NULL,
	extents bytea,
	image bytea,
	CONSTRAINT shuffle_segment_pkey PRIMARY KEY (tablespace, filenumber, number)
) USING heap;

-- A row may take half a page: there, small images and extents are quicker to write and to read
-- than in the TOAST table.
ALTER TABLE shuffle_segment SET (toast_tuple_target = 4080);
-- Uncompressed, so that one partition's entries can be read by themselves.
ALTER TABLE shuffle_segment ALTER COLUMN extents SET STORAGE EXTERNAL;
-- Compressed before, where that helps.
ALTER TABLE shuffle_segment ALTER COLUMN image SET STORAGE EXTERNAL;

REVOKE ALL ON TABLE shuffle_segment FROM PUBLIC;

COMMENT ON TABLE shuffle_segment IS
	'published segments of shuffle tables; see the views shuffle_segments and shuffle_index';
COMMENT ON COLUMN shuffle_segment.tablespace IS
	'reltablespace of the table, 0 for the database''s default';
COMMENT ON COLUMN shuffle_segment.filenumber IS 'relfilenode of the table';
COMMENT ON COLUMN shuffle_segment.number IS 'number of the segment, unique in the table';
COMMENT ON COLUMN shuffle_segment.partitions IS 'number of partitions that the rows were routed to';
COMMENT ON COLUMN shuffle_segment.id IS
	'random; also in the schema metadata of the segment''s files';
COMMENT ON COLUMN shuffle_segment.rows IS 'number of rows';
COMMENT ON COLUMN shuffle_segment.bytes IS 'size of its files, or of the image, in bytes';
COMMENT ON COLUMN shuffle_segment.raw_bytes IS
	'size of the Arrow data before compression, in bytes';
COMMENT ON COLUMN shuffle_segment.blocks IS 'number of Arrow record batches';
COMMENT ON COLUMN shuffle_segment.files IS 'number of files; 0: the segment is the image';
COMMENT ON COLUMN shuffle_segment.nextents IS 'number of entries in extents';
COMMENT ON COLUMN shuffle_segment.written IS 'when it was published';
COMMENT ON COLUMN shuffle_segment.metrics IS
	'metrics of its process, in the process''s last segment only; see shuffle_process_stats';
COMMENT ON COLUMN shuffle_segment.layout IS
	'log: one file; partition_files: a directory with one file per partition';
COMMENT ON COLUMN shuffle_segment.root IS
	'where its files are: pg_shuffle in the data directory, or a directory of '
	'shuffle_ext.directory';
COMMENT ON COLUMN shuffle_segment.name IS 'name of its file without .arrow, or of its directory';
COMMENT ON COLUMN shuffle_segment.routing IS 'options that the rows were routed and stored with';
COMMENT ON COLUMN shuffle_segment.extents IS
	'48-byte entries of the offset index, by partition and offset; see shuffle_expand_extents()';
COMMENT ON COLUMN shuffle_segment.image IS
	'a small segment: what would be the bytes of its file; else NULL';

-- Segment numbers, taken modulo 2^20 and unique per storage.
CREATE SEQUENCE shuffle_segment_number CYCLE;
REVOKE ALL ON SEQUENCE shuffle_segment_number FROM PUBLIC;
COMMENT ON SEQUENCE shuffle_segment_number IS 'numbers of new segments, modulo 1048576';

-- Keeps replicated and hand-made changes out; the extension's own bypass triggers.
CREATE FUNCTION shuffle_segment_guard() RETURNS trigger
	LANGUAGE C AS 'MODULE_PATHNAME';
REVOKE ALL ON FUNCTION shuffle_segment_guard() FROM PUBLIC;
COMMENT ON FUNCTION shuffle_segment_guard() IS
	'keeps changes that the extension has not made out of shuffle_segment';

CREATE TRIGGER shuffle_segment_guard BEFORE INSERT OR UPDATE OR DELETE ON shuffle_segment
	FOR EACH ROW EXECUTE FUNCTION shuffle_segment_guard();
ALTER TABLE shuffle_segment ENABLE ALWAYS TRIGGER shuffle_segment_guard;

CREATE TRIGGER shuffle_segment_guard_truncate BEFORE TRUNCATE ON shuffle_segment
	FOR EACH STATEMENT EXECUTE FUNCTION shuffle_segment_guard();
ALTER TABLE shuffle_segment ENABLE ALWAYS TRIGGER shuffle_segment_guard_truncate;

COMMENT ON TRIGGER shuffle_segment_guard ON shuffle_segment IS 'leaves out rows of others';
COMMENT ON TRIGGER shuffle_segment_guard_truncate ON shuffle_segment IS 'refuses TRUNCATE';

-- When leftover files were last looked for.  Unlogged, so that a crash empties it.
CREATE UNLOGGED TABLE shuffle_sweep_state (
	swept timestamptz NOT NULL
) USING heap;
REVOKE ALL ON TABLE shuffle_sweep_state FROM PUBLIC;
COMMENT ON TABLE shuffle_sweep_state IS
	'when leftover segment files were looked for after the last crash';
COMMENT ON COLUMN shuffle_sweep_state.swept IS
	'when the first sweep after it ended; no row: none has';

--
-- Table access method
--

CREATE FUNCTION shuffle_tableam_handler(internal)
RETURNS table_am_handler
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT;
COMMENT ON FUNCTION shuffle_tableam_handler(internal) IS 'handler of the access method shuffle';

CREATE ACCESS METHOD shuffle TYPE TABLE HANDLER shuffle_tableam_handler;
COMMENT ON ACCESS METHOD shuffle IS 'tables of partitioned, compressed Arrow blocks';

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

-- The server asks whether the owner of an aggregate, not its user, may call these.
REVOKE ALL ON FUNCTION shuffle_sink_transition(internal, bytea),
	shuffle_sink_transition(internal, bytea, VARIADIC "any"),
	shuffle_sink_row_transition(internal, bytea, record),
	shuffle_sink_combine(internal, internal),
	shuffle_sink_serialize(internal),
	shuffle_sink_deserialize(bytea, internal),
	shuffle_sink_final(internal) FROM PUBLIC;

COMMENT ON FUNCTION shuffle_sink_transition(internal, bytea) IS
	'stores a row that has no columns';
COMMENT ON FUNCTION shuffle_sink_transition(internal, bytea, VARIADIC "any") IS
	'stores a row, of its arguments or, where they are plain columns, of the aggregate''s input';
COMMENT ON FUNCTION shuffle_sink_row_transition(internal, bytea, record) IS
	'stores a row of more columns than a function has arguments';
COMMENT ON FUNCTION shuffle_sink_combine(internal, internal) IS
	'adds the summary of one process to that of another';
COMMENT ON FUNCTION shuffle_sink_serialize(internal) IS
	'completes the segments of a process and returns their summary';
COMMENT ON FUNCTION shuffle_sink_deserialize(bytea, internal) IS 'reads a summary';
COMMENT ON FUNCTION shuffle_sink_final(internal) IS
	'completes the segments of the last process and returns the summary of all';
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
	'runs a query once and writes its rows, partitioned and compressed, into a shuffle table; '
	'returns one row per partition: rows, bytes stored (bytes) and before compression '
	'(raw_bytes), blocks, segments';

CREATE FUNCTION shuffle_set(
	relation regclass,
	partitions integer DEFAULT NULL,
	keys text[] DEFAULT NULL,
	method text DEFAULT NULL,
	bounds text[] DEFAULT NULL,
	hash text DEFAULT NULL,
	layout text DEFAULT NULL,
	codec text DEFAULT NULL,
	types text DEFAULT NULL,
	unrepresentable text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION shuffle_set(regclass, integer, text[], text, text[], text, text, text, text,
	text) IS
	'changes options of a table, what decides the partition of a row only while it is empty; '
	'returns all that it has';

--
-- Reading
--

CREATE FUNCTION shuffle_read_support(internal)
RETURNS internal
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT;
COMMENT ON FUNCTION shuffle_read_support(internal) IS
	'tells the planner how many rows shuffle_read returns';

CREATE FUNCTION shuffle_read(prototype anyelement, VARIADIC partitions int[])
RETURNS SETOF anyelement
AS 'MODULE_PATHNAME'
LANGUAGE C STABLE PARALLEL SAFE CALLED ON NULL INPUT COST 1 ROWS 10000
SUPPORT shuffle_read_support;
COMMENT ON FUNCTION shuffle_read(anyelement, int[]) IS
	'rows of some partitions of the shuffle table whose row type the first argument has';

CREATE FUNCTION shuffle_fetch(relation regclass, VARIADIC partitions int[])
RETURNS SETOF bytea
AS 'MODULE_PATHNAME'
LANGUAGE C STABLE PARALLEL SAFE CALLED ON NULL INPUT COST 100 ROWS 100;
COMMENT ON FUNCTION shuffle_fetch(regclass, int[]) IS
	'some partitions of a shuffle table as one Arrow IPC stream, in chunks of 1 MB';

CREATE FUNCTION shuffle_partition_of(relation regclass, VARIADIC keys "any")
RETURNS int4
AS 'MODULE_PATHNAME'
LANGUAGE C STABLE PARALLEL SAFE CALLED ON NULL INPUT;
COMMENT ON FUNCTION shuffle_partition_of(regclass, "any") IS
	'partition that rows with these values of the key columns, in their order, go to';

--
-- Views: the offset index
--
-- They show tables whose every row and column the caller may read.  The functions run
-- with the caller's rights and are safe to call directly.  Operators get exactly the types
-- that pg_catalog has them for: a better match in the extension's schema, which others may
-- have filled before CREATE EXTENSION, would run with the rights of whoever uses the view.
--
CREATE FUNCTION shuffle_expand_extents(
	extents bytea,
	OUT partition int4,
	OUT byte_offset int8,
	OUT bytes int8,
	OUT raw_bytes int8,
	OUT rows int8,
	OUT blocks int4,
	OUT first_row int8)
	RETURNS SETOF record
	LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE
	AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION shuffle_expand_extents(bytea) IS
	'rows of the offset index from their stored form; used by shuffle_index';

CREATE FUNCTION shuffle_partition_totals(
	relation regclass,
	OUT partition int4,
	OUT rows int8,
	OUT bytes int8,
	OUT raw_bytes int8,
	OUT blocks int8,
	OUT segments int4)
	RETURNS SETOF record
	LANGUAGE C STRICT STABLE PARALLEL SAFE
	AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION shuffle_partition_totals(regclass) IS
	'totals of each partition of a shuffle table; used by shuffle_partitions';

CREATE VIEW shuffle_segments WITH (security_barrier) AS
	SELECT c.oid::regclass AS relation,
		s.number AS segment,
		s.layout,
		s.partitions,
		s.rows,
		s.bytes,
		s.raw_bytes,
		s.blocks,
		s.nextents AS extents,
		s.files,
		s.id,
		s.routing,
		CASE WHEN s.files > 0 THEN
			s.root || '/' || (SELECT d.oid::text FROM pg_catalog.pg_database d
				WHERE d.datname = pg_catalog.current_database())
			|| '/' || s.tablespace::text || '_' || s.filenumber::text || '/' || s.name
			|| CASE s.layout WHEN 'log' THEN '.arrow' ELSE '' END
			END AS path
	FROM pg_catalog.pg_class c
		JOIN @extschema@.shuffle_segment s
			ON s.tablespace = c.reltablespace AND s.filenumber = c.relfilenode
	WHERE pg_catalog.has_table_privilege(c.oid, 'SELECT')
		AND NOT pg_catalog.row_security_active(c.oid);

COMMENT ON VIEW shuffle_segments IS
	'segments of shuffle tables: what one process wrote at one go, in a log up to about 1 GB';
COMMENT ON COLUMN shuffle_segments.relation IS 'shuffle table';
COMMENT ON COLUMN shuffle_segments.segment IS 'number of the segment, unique in the table';
COMMENT ON COLUMN shuffle_segments.layout IS
	'log: one file; partition_files: a directory with one file per partition';
COMMENT ON COLUMN shuffle_segments.partitions IS
	'number of partitions that the rows were routed to';
COMMENT ON COLUMN shuffle_segments.rows IS 'number of rows';
COMMENT ON COLUMN shuffle_segments.bytes IS
	'size of its files, or of the segment kept in the catalog, in bytes';
COMMENT ON COLUMN shuffle_segments.raw_bytes IS
	'size of the Arrow data before compression, in bytes';
COMMENT ON COLUMN shuffle_segments.blocks IS 'number of Arrow record batches';
COMMENT ON COLUMN shuffle_segments.extents IS 'number of rows it has in shuffle_index';
COMMENT ON COLUMN shuffle_segments.files IS
	'number of files; 0: the segment is small and kept in the catalog';
COMMENT ON COLUMN shuffle_segments.id IS 'segment id, also in the schema metadata of its files';
COMMENT ON COLUMN shuffle_segments.routing IS 'options that the rows were routed and stored with';
COMMENT ON COLUMN shuffle_segments.path IS
	'its file or directory, NULL without files; a relative path starts in the data directory';

CREATE VIEW shuffle_index WITH (security_barrier) AS
	SELECT x.relation,
		x.segment,
		(x.extent).partition,
		(x.extent).byte_offset,
		(x.extent).bytes,
		(x.extent).raw_bytes,
		(x.extent).rows,
		(x.extent).blocks,
		(x.extent).first_row,
		CASE x.layout WHEN 'log' THEN x.path
			ELSE x.path || '/p' || pg_catalog.lpad((x.extent).partition::text, 5, '0') || '.arrow'
			END AS path
	FROM (
		SELECT c.oid::regclass AS relation,
			s.number AS segment,
			s.layout,
			CASE WHEN s.files > 0 THEN
				s.root || '/' || (SELECT d.oid::text FROM pg_catalog.pg_database d
					WHERE d.datname = pg_catalog.current_database())
				|| '/' || s.tablespace::text || '_' || s.filenumber::text || '/' || s.name
				|| CASE s.layout WHEN 'log' THEN '.arrow' ELSE '' END
				END AS path,
			@extschema@.shuffle_expand_extents(s.extents) AS extent
		FROM pg_catalog.pg_class c
			JOIN @extschema@.shuffle_segment s
				ON s.tablespace = c.reltablespace AND s.filenumber = c.relfilenode
		WHERE pg_catalog.has_table_privilege(c.oid, 'SELECT')
			AND NOT pg_catalog.row_security_active(c.oid)
	) x;

COMMENT ON VIEW shuffle_index IS
	'offset index: where the blocks of each partition of shuffle tables are';
COMMENT ON COLUMN shuffle_index.relation IS 'shuffle table';
COMMENT ON COLUMN shuffle_index.segment IS 'number of the segment, see shuffle_segments';
COMMENT ON COLUMN shuffle_index.partition IS 'partition, from 0';
COMMENT ON COLUMN shuffle_index.byte_offset IS
	'where the first block''s message begins, in bytes from the start of the file';
COMMENT ON COLUMN shuffle_index.bytes IS
	'size of the blocks'' messages, one after the other, in bytes';
COMMENT ON COLUMN shuffle_index.raw_bytes IS
	'size of the blocks'' Arrow data before compression, in bytes';
COMMENT ON COLUMN shuffle_index.rows IS 'number of rows';
COMMENT ON COLUMN shuffle_index.blocks IS 'number of Arrow record batches';
COMMENT ON COLUMN shuffle_index.first_row IS 'number of the first row in the segment, from 0';
COMMENT ON COLUMN shuffle_index.path IS
	'file, NULL for a segment kept in the catalog; a relative path starts in the data directory';

CREATE VIEW shuffle_partitions WITH (security_barrier) AS
	SELECT x.relation,
		(x.total).partition,
		(x.total).rows,
		(x.total).bytes,
		(x.total).raw_bytes,
		(x.total).blocks,
		(x.total).segments
	FROM (
		SELECT c.oid::regclass AS relation,
			@extschema@.shuffle_partition_totals(c.oid::regclass) AS total
		FROM pg_catalog.pg_class c
		WHERE c.relam = (SELECT a.oid FROM pg_catalog.pg_am a WHERE a.amname = 'shuffle')
			AND c.relfilenode <> 0::oid
			AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
			AND NOT pg_catalog.row_security_active(c.oid)
	) x;

COMMENT ON VIEW shuffle_partitions IS
	'totals of each partition of shuffle tables, empty ones included';
COMMENT ON COLUMN shuffle_partitions.relation IS 'shuffle table';
COMMENT ON COLUMN shuffle_partitions.partition IS 'partition, from 0';
COMMENT ON COLUMN shuffle_partitions.rows IS 'number of rows';
COMMENT ON COLUMN shuffle_partitions.bytes IS 'size of its blocks, in bytes';
COMMENT ON COLUMN shuffle_partitions.raw_bytes IS
	'size of its Arrow data before compression, in bytes';
COMMENT ON COLUMN shuffle_partitions.blocks IS 'number of Arrow record batches';
COMMENT ON COLUMN shuffle_partitions.segments IS 'number of segments that have rows of it';

GRANT SELECT ON shuffle_segments, shuffle_index, shuffle_partitions TO PUBLIC;

--
-- Metrics: where the time of writes went
--
CREATE VIEW shuffle_process_stats WITH (security_barrier) AS
	SELECT x.relation,
		x.write,
		x.process,
		pg_catalog.max(x.written) AS written,
		pg_catalog.count(*) AS segments,
		pg_catalog.sum(x.rows)::int8 AS rows,
		pg_catalog.sum(x.raw_bytes)::int8 AS raw_bytes,
		pg_catalog.sum(x.bytes)::int8 AS stored_bytes,
		pg_catalog.sum(x.blocks)::int8 AS blocks,
		pg_catalog.sum(x.metrics[1])::int8 AS runs,
		pg_catalog.max(x.metrics[2]) AS memory_peak,
		(pg_catalog.sum(x.metrics[3]) / 1e6)::float8 AS elapsed_ms,
		(pg_catalog.sum(x.metrics[4]) / 1e6)::float8 AS input_ms,
		(pg_catalog.sum(x.metrics[5]) / 1e6)::float8 AS repartition_ms,
		(pg_catalog.sum(x.metrics[6]) / 1e6)::float8 AS interleave_ms,
		(pg_catalog.sum(x.metrics[7]) / 1e6)::float8 AS encode_ms,
		(pg_catalog.sum(x.metrics[8]) / 1e6)::float8 AS write_ms,
		(pg_catalog.sum(x.metrics[9]) / 1e6)::float8 AS sync_ms,
		(pg_catalog.sum(x.metrics[10]) / 1e6)::float8 AS queue_ms
	FROM (
		SELECT c.oid::regclass AS relation,
			pg_catalog.regexp_replace(s.name, '-[^-]*-[^-]*$', '') AS write,
			('x' || pg_catalog.lpad(pg_catalog.split_part(s.name, '-', 4), 8, '0'))::bit(32)::int4
				AS process,
			s.written, s.rows, s.raw_bytes, s.bytes, s.blocks, s.metrics
		FROM pg_catalog.pg_class c
			JOIN @extschema@.shuffle_segment s
				ON s.tablespace = c.reltablespace AND s.filenumber = c.relfilenode
		WHERE pg_catalog.has_table_privilege(c.oid, 'SELECT')
			AND NOT pg_catalog.row_security_active(c.oid)
	) x
	GROUP BY x.relation, x.write, x.process;

COMMENT ON VIEW shuffle_process_stats IS
	'metrics of each process of the writes that shuffle tables hold';
COMMENT ON COLUMN shuffle_process_stats.relation IS 'shuffle table';
COMMENT ON COLUMN shuffle_process_stats.write IS
	'what the names of all segments of one write begin with';
COMMENT ON COLUMN shuffle_process_stats.process IS 'number of the process in the write, from 0';
COMMENT ON COLUMN shuffle_process_stats.written IS 'when its last segment was published';
COMMENT ON COLUMN shuffle_process_stats.segments IS 'number of segments';
COMMENT ON COLUMN shuffle_process_stats.rows IS 'number of rows';
COMMENT ON COLUMN shuffle_process_stats.raw_bytes IS
	'size of the Arrow data before compression, in bytes';
COMMENT ON COLUMN shuffle_process_stats.stored_bytes IS 'size of what was stored, in bytes';
COMMENT ON COLUMN shuffle_process_stats.blocks IS 'number of Arrow record batches';
COMMENT ON COLUMN shuffle_process_stats.runs IS 'how often the row buffer was emptied';
COMMENT ON COLUMN shuffle_process_stats.memory_peak IS
	'most memory in use by the writer at one time, in bytes';
COMMENT ON COLUMN shuffle_process_stats.elapsed_ms IS
	'from the first planning of the query to the last byte, in milliseconds';
COMMENT ON COLUMN shuffle_process_stats.input_ms IS
	'waiting for rows of the query, its planning, its beginning and the estimation of bounds '
	'included, in milliseconds';
COMMENT ON COLUMN shuffle_process_stats.repartition_ms IS
	'finding partitions, packing rows into the row buffer, sorting it, in milliseconds';
COMMENT ON COLUMN shuffle_process_stats.interleave_ms IS
	'gathering rows of a partition into columns, in milliseconds';
COMMENT ON COLUMN shuffle_process_stats.encode_ms IS
	'compression, block headers and checksums, in milliseconds';
COMMENT ON COLUMN shuffle_process_stats.write_ms IS
	'creating, writing and completing files, in milliseconds';
COMMENT ON COLUMN shuffle_process_stats.sync_ms IS
	'flushing files and directories to disk, in milliseconds';
COMMENT ON COLUMN shuffle_process_stats.queue_ms IS
	'waiting for the writer thread; with one, interleave, encode, write and sync run beside the '
	'rest, in milliseconds';

CREATE VIEW shuffle_stats WITH (security_barrier) AS
	SELECT p.relation,
		p.write,
		pg_catalog.max(p.written) AS written,
		pg_catalog.count(*) AS processes,
		pg_catalog.sum(p.segments)::int8 AS segments,
		pg_catalog.sum(p.rows)::int8 AS rows,
		pg_catalog.sum(p.raw_bytes)::int8 AS raw_bytes,
		pg_catalog.sum(p.stored_bytes)::int8 AS stored_bytes,
		pg_catalog.sum(p.blocks)::int8 AS blocks,
		pg_catalog.sum(p.runs)::int8 AS runs,
		pg_catalog.sum(p.memory_peak)::int8 AS memory_peak,
		pg_catalog.max(p.elapsed_ms) AS elapsed_ms,
		pg_catalog.sum(p.input_ms) AS input_ms,
		pg_catalog.sum(p.repartition_ms) AS repartition_ms,
		pg_catalog.sum(p.interleave_ms) AS interleave_ms,
		pg_catalog.sum(p.encode_ms) AS encode_ms,
		pg_catalog.sum(p.write_ms) AS write_ms,
		pg_catalog.sum(p.sync_ms) AS sync_ms,
		pg_catalog.sum(p.queue_ms) AS queue_ms
	FROM @extschema@.shuffle_process_stats p
	GROUP BY p.relation, p.write;

COMMENT ON VIEW shuffle_stats IS
	'metrics of the writes that shuffle tables hold, summed over their processes';
COMMENT ON COLUMN shuffle_stats.relation IS 'shuffle table';
COMMENT ON COLUMN shuffle_stats.write IS 'what the names of all segments of one write begin with';
COMMENT ON COLUMN shuffle_stats.written IS 'when its last segment was published';
COMMENT ON COLUMN shuffle_stats.processes IS 'number of processes that wrote';
COMMENT ON COLUMN shuffle_stats.segments IS 'number of segments';
COMMENT ON COLUMN shuffle_stats.rows IS 'number of rows';
COMMENT ON COLUMN shuffle_stats.raw_bytes IS 'size of the Arrow data before compression, in bytes';
COMMENT ON COLUMN shuffle_stats.stored_bytes IS 'size of what was stored, in bytes';
COMMENT ON COLUMN shuffle_stats.blocks IS 'number of Arrow record batches';
COMMENT ON COLUMN shuffle_stats.runs IS 'how often a row buffer was emptied';
COMMENT ON COLUMN shuffle_stats.memory_peak IS 'sum over the processes of their peaks, in bytes';
COMMENT ON COLUMN shuffle_stats.elapsed_ms IS 'of the process that took longest, in milliseconds';
COMMENT ON COLUMN shuffle_stats.input_ms IS
	'of all processes together: waiting for rows of the query, its planning, its beginning and '
	'the estimation of bounds included, in milliseconds';
COMMENT ON COLUMN shuffle_stats.repartition_ms IS
	'of all processes together: finding partitions, packing rows into the row buffer, sorting it, '
	'in milliseconds';
COMMENT ON COLUMN shuffle_stats.interleave_ms IS
	'of all processes together: gathering rows of a partition into columns, in milliseconds';
COMMENT ON COLUMN shuffle_stats.encode_ms IS
	'of all processes together: compression, block headers and checksums, in milliseconds';
COMMENT ON COLUMN shuffle_stats.write_ms IS
	'of all processes together: creating, writing and completing files, in milliseconds';
COMMENT ON COLUMN shuffle_stats.sync_ms IS
	'of all processes together: flushing files and directories to disk, in milliseconds';
COMMENT ON COLUMN shuffle_stats.queue_ms IS
	'of all processes together: waiting for the writer thread; with one, interleave, encode, '
	'write and sync run beside the rest, in milliseconds';

GRANT SELECT ON shuffle_process_stats, shuffle_stats TO PUBLIC;

CREATE FUNCTION shuffle_write_stats(
	OUT process int4,
	OUT segments int8,
	OUT rows int8,
	OUT raw_bytes int8,
	OUT stored_bytes int8,
	OUT blocks int8,
	OUT runs int8,
	OUT memory_peak int8,
	OUT elapsed_ms float8,
	OUT input_ms float8,
	OUT repartition_ms float8,
	OUT interleave_ms float8,
	OUT encode_ms float8,
	OUT write_ms float8,
	OUT sync_ms float8,
	OUT queue_ms float8)
	RETURNS SETOF record
	LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 3
	AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION shuffle_write_stats() IS
	'metrics of the last write of this session, as in shuffle_process_stats: of each process, and '
	'in the row whose process is NULL of all together';

--
-- Progress of running writes and reads, from the server's own progress slots
--
CREATE VIEW shuffle_progress AS
	SELECT p.leader AS pid,
		p.relation,
		CASE p.operation WHEN 1 THEN 'write' WHEN 2 THEN 'fetch' WHEN 3 THEN 'compact' END
			AS operation,
		CASE p.phase
			WHEN 1 THEN 'planning'
			WHEN 2 THEN 'reading input'
			WHEN 3 THEN 'writing blocks'
			WHEN 4 THEN 'finishing files'
			WHEN 5 THEN 'waiting for other processes'
			WHEN 6 THEN 'publishing'
			WHEN 7 THEN 'sending'
			END AS phase,
		p.rows,
		p.bytes,
		p.expected_rows,
		pg_catalog.round(100.0 * p.rows::numeric / NULLIF(p.expected_rows, 0)::numeric, 1) AS percent,
		p.processes
	FROM (
		SELECT s.param16::int4 AS leader,
			pg_catalog.max(s.param18)::oid::regclass AS relation,
			pg_catalog.max(s.param11) AS operation,
			COALESCE(pg_catalog.max(s.param12) FILTER (WHERE s.pid = s.param16),
				pg_catalog.max(s.param12)) AS phase,
			pg_catalog.sum(s.param13)::int8 AS rows,
			pg_catalog.sum(s.param14)::int8 AS bytes,
			pg_catalog.max(s.param15) AS expected_rows,
			pg_catalog.sum(s.param17)::int4 AS processes
		FROM pg_catalog.pg_stat_get_progress_info('COPY') s
		WHERE s.param20 = 1397249350 -- PROGRESS_MAGIC in progress.c
			AND s.datid = (SELECT d.oid FROM pg_catalog.pg_database d
				WHERE d.datname = pg_catalog.current_database())
		GROUP BY s.param16
	) p;

COMMENT ON VIEW shuffle_progress IS
	'running writes into shuffle tables, compactions, and calls of shuffle_fetch, of the roles '
	'whose activity one may see';
COMMENT ON COLUMN shuffle_progress.pid IS 'process of the session';
COMMENT ON COLUMN shuffle_progress.relation IS 'shuffle table';
COMMENT ON COLUMN shuffle_progress.operation IS 'write, fetch or compact';
COMMENT ON COLUMN shuffle_progress.phase IS 'what the session''s process is doing';
COMMENT ON COLUMN shuffle_progress.rows IS 'rows so far, of all processes together';
COMMENT ON COLUMN shuffle_progress.bytes IS 'bytes stored or sent so far';
COMMENT ON COLUMN shuffle_progress.expected_rows IS
	'rows in all: of a write what the planner expects, 0 if that is not known; of others exactly';
COMMENT ON COLUMN shuffle_progress.percent IS
	'rows in percent of expected_rows; more than 100 when the planner has expected too few';
COMMENT ON COLUMN shuffle_progress.processes IS 'processes that have had rows';

GRANT SELECT ON shuffle_progress TO PUBLIC;

--
-- Skew
--
CREATE FUNCTION shuffle_skew(relation regclass, by text DEFAULT 'rows')
	RETURNS SETOF text
	LANGUAGE C STRICT VOLATILE PARALLEL SAFE COST 10000 ROWS 20
	AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION shuffle_skew(regclass, text) IS
	'how evenly a shuffle table is partitioned, by rows or bytes: a histogram in text, and the '
	'most frequent keys of the largest partitions from a sample';

CREATE FUNCTION shuffle_skew_svg(relation regclass, by text DEFAULT 'rows')
	RETURNS text
	LANGUAGE C STRICT VOLATILE PARALLEL SAFE COST 10000
	AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION shuffle_skew_svg(regclass, text) IS
	'what shuffle_skew() tells, as an SVG picture';

--
-- Maintenance
--
CREATE FUNCTION shuffle_sweep() RETURNS int8
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME';
REVOKE ALL ON FUNCTION shuffle_sweep() FROM PUBLIC;
COMMENT ON FUNCTION shuffle_sweep() IS
	'removes segment files that no table needs, of this database and of dropped ones, and returns '
	'how many; a crash leaves such files, and the first write after it removes them';

CREATE FUNCTION shuffle_size(relation regclass)
RETURNS bigint
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION shuffle_size(regclass) IS
	'size of all segments of a shuffle table, in files and in the catalog, in bytes';

CREATE FUNCTION shuffle_verify(relation regclass,
	OUT file text, OUT partition int, OUT blocks bigint, OUT rows bigint, OUT error text)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE COST 1000000;
COMMENT ON FUNCTION shuffle_verify(regclass) IS
	'checks checksums and structure of all segments of a shuffle table; error is NULL for a sound '
	'one';

CREATE FUNCTION shuffle_compact(relation regclass,
	OUT segments_before bigint, OUT segments_after bigint, OUT rows bigint,
	OUT bytes_before bigint, OUT bytes_after bigint)
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE COST 1000000
AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION shuffle_compact(regclass) IS
	'merges small segments of a shuffle table while it is being read and written; returns '
	'segments and bytes of the table before and after it, and how many rows were moved';
