/*
 * module.c
 *	  Library entry: settings, label provider, transaction callbacks, hooks.
 *
 * Nothing here touches a catalog or shared memory: the library is loaded on first use,
 * in parallel workers too, and works with or without shared_preload_libraries.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/guc.h"

#include "alter.h"
#include "read_state.h"
#include "write_state.h"

SHUFFLE_MODULE_MAGIC;

int	  shuffle_setting_partitions;
char *shuffle_setting_codec;
int	  shuffle_setting_memory_limit_kb;
int	  shuffle_setting_block_rows;
int	  shuffle_setting_block_bytes;
int	  shuffle_setting_block_min_rows;
int	  shuffle_setting_writer_threads;
int	  shuffle_setting_write_buffer_kb;
int	  shuffle_setting_inline_bytes;
int	  shuffle_setting_output_limit_kb;
char *shuffle_setting_directory;
bool  shuffle_setting_sync;
bool  shuffle_setting_read_ahead;

/* A row buffer addresses 8-byte units with 32 bits, and there may be two of them. */
#define MEMORY_LIMIT_MAX_KB (64 * 1024 * 1024)
#define MEMORY_LIMIT_MIN_KB 1024
#define BLOCK_ROWS_MAX		1000000
#define BLOCK_BYTES_MIN		1024
#define BLOCK_BYTES_MAX		(1024 * 1024 * 1024)
#define WRITE_BUFFER_MIN_KB 64
#define WRITER_THREADS_MAX	64
#define WRITE_BUFFER_MAX_KB (1024 * 1024)

extern PGDLLEXPORT void _PG_init(void);

static bool
check_codec(char **newval, void **extra, GucSource source)
{
	ShfCodec codec;
	char	*message;

	if (shuffle_try_parse_codec(*newval, &codec, &message))
		return true;
	GUC_check_errdetail("%s", message);
	return false;
}

/* Segment rows remember the path, so it must mean the same in every process. */
static bool
check_directory(char **newval, void **extra, GucSource source)
{
	if ((*newval)[0] == '\0')
		return true;
	if (!is_absolute_path(*newval))
	{
		GUC_check_errdetail("The directory must be an absolute path.");
		return false;
	}
	if (strlen(*newval) >= MAXPGPATH / 2)
	{
		GUC_check_errdetail("The path must be shorter than %d bytes.", MAXPGPATH / 2);
		return false;
	}
	canonicalize_path(*newval);
	return true;
}

static void
define_settings(void)
{
	DefineCustomIntVariable(
		"shuffle_ext.partitions", "Number of partitions when a write does not say how many.",
		"Used by shuffle_write() without the argument \"partitions\". "
		"An existing table keeps the number it was made with.",
		&shuffle_setting_partitions, 200, 1, SHF_MAX_PARTITIONS, PGC_USERSET, 0, NULL, NULL, NULL);

	DefineCustomStringVariable(
		"shuffle_ext.codec", "Compression of blocks when a write does not name a codec.",
		"Valid values are \"none\", \"lz4\", \"lz4:LEVEL\", \"zstd\" and "
		"\"zstd:LEVEL\". Higher levels make smaller files in more time.",
		&shuffle_setting_codec, "lz4", PGC_USERSET, 0, check_codec, NULL, NULL);

	DefineCustomIntVariable("shuffle_ext.memory_limit", "Memory that each writing process may use.",
							"Holds rows until they are emitted as blocks in partition order. "
							"Many partitions need much of it for full blocks. A row larger "
							"than the limit is still written.",
							&shuffle_setting_memory_limit_kb, 256 * 1024, MEMORY_LIMIT_MIN_KB,
							MEMORY_LIMIT_MAX_KB, PGC_USERSET, GUC_UNIT_KB, NULL, NULL, NULL);

	DefineCustomIntVariable("shuffle_ext.block_rows", "Most rows in one block.",
							"A block is the unit of compression, checksum and reading. It ends "
							"at block_rows or block_bytes, whichever comes first.",
							&shuffle_setting_block_rows, 8192, 1, BLOCK_ROWS_MAX, PGC_USERSET, 0,
							NULL, NULL, NULL);

	DefineCustomIntVariable("shuffle_ext.block_bytes",
							"Most bytes of rows, before compression, in one block.",
							"A block holds at least one row. It ends at block_rows or "
							"block_bytes, whichever comes first.",
							&shuffle_setting_block_bytes, 1024 * 1024, BLOCK_BYTES_MIN,
							BLOCK_BYTES_MAX, PGC_USERSET, GUC_UNIT_BYTE, NULL, NULL, NULL);

	DefineCustomIntVariable(
		"shuffle_ext.block_min_rows", "Rows below which a partition waits for a later block.",
		"A partition with fewer buffered rows keeps them in memory as long "
		"as half of memory_limit gets free without them. 1 switches it off.",
		&shuffle_setting_block_min_rows, 64, 1, BLOCK_ROWS_MAX, PGC_USERSET, 0, NULL, NULL, NULL);

	DefineCustomIntVariable(
		"shuffle_ext.write_buffer_size", "Bytes collected before a segment file is written to.",
		"Part of memory_limit.", &shuffle_setting_write_buffer_kb, 1024, WRITE_BUFFER_MIN_KB,
		WRITE_BUFFER_MAX_KB, PGC_USERSET, GUC_UNIT_KB, NULL, NULL, NULL);

	DefineCustomIntVariable("shuffle_ext.writer_threads",
							"Threads that make and write blocks beside a writing process.",
							"The process reads and packs rows meanwhile. -1 means a thread "
							"where one process writes alone, and none in parallel plans; "
							"0 none at all; 1 one for every writing process; "
							"more compress the blocks of one process in parallel.",
							&shuffle_setting_writer_threads, -1, -1, WRITER_THREADS_MAX,
							PGC_USERSET, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("shuffle_ext.inline_size",
							"Segments of up to this size are kept in the catalog.",
							"Small inserts then need no file and no flush, but go through the "
							"write-ahead log. 0 makes a file of every segment.",
							&shuffle_setting_inline_bytes, SHUFFLE_INLINE_MAX, 0,
							SHUFFLE_INLINE_MAX, PGC_USERSET, GUC_UNIT_BYTE, NULL, NULL, NULL);

	DefineCustomIntVariable(
		"shuffle_ext.output_limit", "Bytes that one statement may write to shuffle tables.",
		"All its processes together. A statement that writes more fails and "
		"leaves nothing. 0 means no limit.",
		&shuffle_setting_output_limit_kb, 0, 0, INT_MAX, PGC_SUSET, GUC_UNIT_KB, NULL, NULL, NULL);

	DefineCustomStringVariable("shuffle_ext.directory", "Directory for new segment files.",
							   "An absolute path; a subdirectory named after this cluster is "
							   "made in it. Empty means pg_shuffle in the data directory. "
							   "Segments written before a change stay where they are.",
							   &shuffle_setting_directory, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   check_directory, NULL, NULL);

	DefineCustomBoolVariable("shuffle_ext.sync",
							 "Flushes segment files to disk before a write completes.",
							 "Off is faster, but a crash of the operating system may damage "
							 "rows that were committed shortly before.",
							 &shuffle_setting_sync, true, PGC_USERSET, 0, NULL, NULL, NULL);

	DefineCustomBoolVariable("shuffle_ext.read_ahead",
							 "Reads and decompresses the next block in a thread.",
							 "While a scan makes rows of one block. Parallel plans have no "
							 "such threads.",
							 &shuffle_setting_read_ahead, true, PGC_USERSET, 0, NULL, NULL, NULL);

	MarkGUCPrefixReserved("shuffle_ext");
}

void
_PG_init(void)
{
	define_settings();
	shuffle_label_init();
	shuffle_xact_init();
	shuffle_states_init();
	shuffle_alter_init();
	shuffle_custom_scans_init();
}
