# shuffle_ext: built with PGXS.
#
#   make [PG_CONFIG=/path/to/pg_config] [WERROR=1]
#   make install
#   make installcheck          pg_regress against a running server
#   test/check.sh              everything, on a throw-away server

EXTENSION = shuffle_ext
MODULE_big = shuffle_ext
DATA = shuffle_ext--1.0.sql

ENGINE_OBJS = \
	src/engine/ahead.o \
	src/engine/batch.o \
	src/engine/codec.o \
	src/engine/compress.o \
	src/engine/crc32c.o \
	src/engine/decode.o \
	src/engine/decompress.o \
	src/engine/encode.o \
	src/engine/encode_large.o \
	src/engine/error.o \
	src/engine/flatbuf_build.o \
	src/engine/flatbuf_parse.o \
	src/engine/gather.o \
	src/engine/index_file.o \
	src/engine/lz4_values.o \
	src/engine/nested.o \
	src/engine/output.o \
	src/engine/output_file.o \
	src/engine/output_log.o \
	src/engine/output_parts.o \
	src/engine/output_stream.o \
	src/engine/pool.o \
	src/engine/reader.o \
	src/engine/rowbuf.o \
	src/engine/schema.o \
	src/engine/segment.o \
	src/engine/template.o \
	src/engine/thread.o \
	src/engine/verify.o \
	src/engine/writer.o \
	src/engine/writer_memory.o \
	src/engine/writer_run.o

PG_OBJS = \
	src/pg/alter.o \
	src/pg/analyze.o \
	src/pg/bounds.o \
	src/pg/bounds_estimate.o \
	src/pg/catalog.o \
	src/pg/compact.o \
	src/pg/custom_scan.o \
	src/pg/deform.o \
	src/pg/error.o \
	src/pg/estimate.o \
	src/pg/execute.o \
	src/pg/extension.o \
	src/pg/extents.o \
	src/pg/fetch.o \
	src/pg/job.o \
	src/pg/label.o \
	src/pg/maintain.o \
	src/pg/match.o \
	src/pg/module.o \
	src/pg/numeric.o \
	src/pg/offset_index.o \
	src/pg/options.o \
	src/pg/options_text.o \
	src/pg/output_limit.o \
	src/pg/pack.o \
	src/pg/pack_row.o \
	src/pg/parallel.o \
	src/pg/partition_of.o \
	src/pg/progress.o \
	src/pg/publish.o \
	src/pg/query.o \
	src/pg/read_ahead.o \
	src/pg/read_block.o \
	src/pg/prune.o \
	src/pg/prune_scan.o \
	src/pg/read_rows.o \
	src/pg/read_state.o \
	src/pg/rewrite.o \
	src/pg/route.o \
	src/pg/scan.o \
	src/pg/set.o \
	src/pg/sink.o \
	src/pg/skew.o \
	src/pg/skew_svg.o \
	src/pg/slot.o \
	src/pg/stats.o \
	src/pg/storage.o \
	src/pg/sweep.o \
	src/pg/sweep_when.o \
	src/pg/tableam.o \
	src/pg/target.o \
	src/pg/textio.o \
	src/pg/typemap.o \
	src/pg/unpack.o \
	src/pg/unpack_values.o \
	src/pg/write.o \
	src/pg/write_args.o \
	src/pg/write_hooks.o \
	src/pg/write_shape.o \
	src/pg/write_state.o \
	src/pg/writer.o \
	src/pg/xact.o

OBJS = $(ENGINE_OBJS) $(PG_OBJS)

REGRESS := $(sort $(patsubst sql/%.sql,%,$(wildcard sql/*.sql)))
REGRESS_OPTS = --load-extension=shuffle_ext

ISOLATION := $(sort $(patsubst test/isolation/specs/%.spec,%,$(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS = --load-extension=shuffle_ext --inputdir=test/isolation

PG_CFLAGS = -std=gnu11 -O2 -fvisibility=hidden -Wall -Wextra -Wno-unused-parameter \
	-Wno-sign-compare -Wno-missing-field-initializers -Wno-cast-function-type
ifeq ($(WERROR),1)
PG_CFLAGS += -Werror
endif
SHLIB_LINK = -llz4 -lzstd -lpthread

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# Every object depends on the headers: the tree is small.
$(OBJS): $(wildcard src/engine/*.h src/pg/*.h)
