/*
 * storage.c
 *	  Where segment files live: roots, directories, names, and their removal.
 *
 * Layout on disk:
 *
 *	  <root>/<database oid>/<tablespace oid>_<filenumber>/<job prefix>-<writer>-<n>.arrow
 *	  <root>/<database oid>/<tablespace oid>_<filenumber>/<job prefix>-<writer>-<n>/p<no>.arrow
 *	  <root>/<database oid>/<tablespace oid>_<filenumber>/<job prefix>-<writer>.index
 *
 * The last one is there until the write ends: part of the offset index, see index_file.c.
 * The root is pg_shuffle in the data directory (never under base/, whose files
 * pg_checksums takes for pages), or <shuffle_ext.directory>/PG_<system identifier>.  The
 * former is a relative path like all of the server's: the data directory is the working
 * directory of every server process.
 * An outer root has an OWNER file naming the data directory it belongs to: a clone
 * of a cluster (a file-level copy, a promoted standby) has the same system identifier
 * and must neither write there nor remove anything.  The OWNER file is made once,
 * under a cluster-wide advisory lock, and linked into place complete.
 *
 * The tablespace in a storage's key is written as in pg_class.reltablespace, 0 for the
 * database's default, so that keys and names survive ALTER DATABASE SET TABLESPACE.
 *
 * Everything that removes files runs in transaction callbacks too.  Those functions
 * never raise, touch no catalog and allocate nothing: what they cannot remove they log,
 * and the sweep tries again.
 */
#include "postgres.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/transam.h"
#include "access/xlog.h"
#include "common/file_perm.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/lock.h"

#include "shuffle.h"
#include "storage.h"

#define OWNER_FILE "OWNER"

/* Depth of directories below a storage's own that we ever make, with one to spare. */
#define REMOVE_MAX_DEPTH 3

void
shuffle_storage_lock_tag(LOCKTAG *tag, Oid database, uint32 purpose)
{
	/* Fourth field: 1 and 2 are the SQL advisory lock functions'. */
	SET_LOCKTAG_ADVISORY(*tag, database, 0x73687566, purpose, 3);
}

ShuffleStorage
shuffle_storage_from_locator(RelFileLocator locator)
{
	ShuffleStorage storage;

	storage.tablespace = locator.spcOid == MyDatabaseTableSpace ? InvalidOid : locator.spcOid;
	storage.filenumber = locator.relNumber;
	return storage;
}

ShuffleStorage
shuffle_storage_of(Relation rel)
{
	return shuffle_storage_from_locator(rel->rd_locator);
}

/* ---------------------------------------------------------------- roots */

char *
shuffle_root(void)
{
	if (shuffle_setting_directory[0] == '\0')
		return pstrdup(SHUFFLE_DATA_ROOT);
	return psprintf("%s/PG_" UINT64_FORMAT, shuffle_setting_directory, GetSystemIdentifier());
}

bool
shuffle_root_is_outer(const char *root)
{
	return is_absolute_path(root);
}

char *
shuffle_database_dir(const char *root, Oid database)
{
	return psprintf("%s/%u", root, database);
}

/* What the first line of this cluster's OWNER files says. */
static char *
owner_name(void)
{
	char resolved[PATH_MAX];

	return pstrdup(realpath(DataDir, resolved) != NULL ? resolved : DataDir);
}

/*
 * Whose is this outer root?  On SHUFFLE_ROOT_FOREIGN *owner is what its OWNER file says.
 * Raises nothing but out of memory: unreadable counts as foreign.
 */
ShuffleRootState
shuffle_root_state(const char *root, char **owner)
{
	char			*path;
	char			*expected;
	char			 found[PATH_MAX + 2];
	int				 fd;
	ssize_t			 len;
	ShuffleRootState state;

	if (owner)
		*owner = NULL;
	if (!shuffle_root_is_outer(root))
		return SHUFFLE_ROOT_OURS;

	path = psprintf("%s/" OWNER_FILE, root);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	pfree(path);
	if (fd < 0)
		return errno == ENOENT ? SHUFFLE_ROOT_NO_OWNER : SHUFFLE_ROOT_FOREIGN;
	len = read(fd, found, sizeof(found) - 1);
	close(fd);
	if (len < 0)
		return SHUFFLE_ROOT_FOREIGN;
	found[len] = '\0';
	found[strcspn(found, "\n")] = '\0';

	expected = owner_name();
	state = strcmp(found, expected) == 0 ? SHUFFLE_ROOT_OURS : SHUFFLE_ROOT_FOREIGN;
	pfree(expected);
	if (state == SHUFFLE_ROOT_FOREIGN && owner)
		*owner = pstrdup(found);
	return state;
}

static bool
directory_is_empty(const char *path)
{
	DIR			  *dir = AllocateDir(path);
	struct dirent *de;
	bool		   empty = true;

	while ((de = ReadDir(dir, path)) != NULL)
	{
		/* "OWNER.<pid>" is what an interrupted claim leaves behind. */
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0 &&
			strncmp(de->d_name, OWNER_FILE ".", strlen(OWNER_FILE ".")) != 0)
			empty = false;
	}
	FreeDir(dir);
	return empty;
}

/*
 * Writes the OWNER file of a new outer root.  It appears complete or not at all, and
 * never replaces one that another cluster was quicker to write.
 */
static void
claim_root(const char *root)
{
	char *name = owner_name();
	char *line = psprintf("%s\n", name);
	char *path = psprintf("%s/" OWNER_FILE, root);
	char *temp = psprintf("%s/" OWNER_FILE ".%d", root, MyProcPid);
	int	  fd;

	(void) unlink(temp);
	fd = OpenTransientFile(temp, O_CREAT | O_EXCL | O_WRONLY | PG_BINARY);
	if (fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not create file \"%s\": %m", temp)));
	errno = 0;
	if (write(fd, line, strlen(line)) != (ssize_t) strlen(line) || pg_fsync(fd) != 0)
	{
		int save_errno = errno ? errno : ENOSPC;

		(void) unlink(temp);
		errno = save_errno;
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not write to file \"%s\": %m", temp)));
	}
	if (CloseTransientFile(fd) != 0)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not close file \"%s\": %m", temp)));

	/* File systems without hard links: a rename, which the advisory lock makes safe enough. */
	if (link(temp, path) != 0 && errno != EEXIST && rename(temp, path) != 0)
	{
		int save_errno = errno;

		(void) unlink(temp);
		errno = save_errno;
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not create file \"%s\": %m", path)));
	}
	(void) unlink(temp);
	shuffle_fsync_dir(root);

	pfree(temp);
	pfree(path);
	pfree(line);
	pfree(name);
}

/* mkdir with the data directory's mode; true if the directory was not there before. */
static bool
make_directory(const char *path)
{
	struct stat st;
	bool		denied;

	if (MakePGDirectory(path) == 0)
		return true;
	if (errno == EEXIST)
	{
		if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
			return false;
		errno = ENOTDIR;
	}
	denied = errno == EACCES || errno == EPERM || errno == EROFS;
	ereport(ERROR,
			(errcode_for_file_access(), errmsg("could not create directory \"%s\": %m", path),
			 denied ? errhint("The operating-system user that runs the server must be able to "
							  "write there.") :
					  0));
	return false; /* keep compiler quiet */
}

/* Checks shuffle_ext.directory itself: we make a subdirectory in it, never the directory. */
static void
check_outer_directory(const char *directory)
{
	struct stat st;

	if (stat(directory, &st) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not use \"shuffle_ext.directory\" \"%s\": %m", directory),
				 errhint("Create the directory, owned by the operating-system user that runs the "
						 "server, or change \"shuffle_ext.directory\" and reload.")));
	if (!S_ISDIR(st.st_mode))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"shuffle_ext.directory\" \"%s\" is not a directory", directory)));
	if (access(directory, W_OK | X_OK) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not use \"shuffle_ext.directory\" \"%s\": %m", directory),
				 errhint("The operating-system user that runs the server must be able to write "
						 "there.")));
}

/* Makes an outer root ours, or raises. */
static void
prepare_outer_root(const char *root)
{
	char			*directory = pstrdup(root);
	char			*owner;
	ShuffleRootState state;

	*strrchr(directory, '/') = '\0';
	if (directory[0] == '\0')
		strcpy(directory, "/");
	check_outer_directory(directory);
	(void) make_directory(root);

	state = shuffle_root_state(root, &owner);
	if (state == SHUFFLE_ROOT_NO_OWNER)
	{
		LOCKTAG tag;

		shuffle_storage_lock_tag(&tag, InvalidOid, SHUFFLE_LOCK_OWNER);
		(void) LockAcquire(&tag, ExclusiveLock, false, false);
		state = shuffle_root_state(root, &owner);
		if (state == SHUFFLE_ROOT_NO_OWNER && directory_is_empty(root))
		{
			claim_root(root);
			if (shuffle_setting_sync)
				shuffle_fsync_dir(directory);
			state = shuffle_root_state(root, &owner);
		}
		(void) LockRelease(&tag, ExclusiveLock, false);
	}

	if (state == SHUFFLE_ROOT_NO_OWNER)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("directory \"%s\" is not empty and has no file \"%s\"", root, OWNER_FILE),
				 errhint("If the directory is this cluster's, write the path of its data directory "
						 "into that file.")));
	if (state == SHUFFLE_ROOT_FOREIGN)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("directory \"%s\" belongs to another cluster", root),
				 owner ? errdetail("Its file \"%s\" names the data directory \"%s\".", OWNER_FILE,
								   owner) :
						 errdetail("Its file \"%s\" could not be read.", OWNER_FILE),
				 errhint("Set \"shuffle_ext.directory\" to a directory of this cluster's own.  If "
						 "this is the same cluster and its data directory was moved, write the "
						 "new path into that file.")));
	pfree(directory);
}

/* ---------------------------------------------------------------- storages */

char *
shuffle_storage_dir(const char *root, const ShuffleStorage *storage)
{
	char *database = shuffle_database_dir(root, MyDatabaseId);
	char *dir = psprintf("%s/%u_%u", database, storage->tablespace, storage->filenumber);

	pfree(database);
	return dir;
}

char *
shuffle_storage_prepare(const ShuffleStorage *storage)
{
	char   *root = shuffle_root();
	char   *database = shuffle_database_dir(root, MyDatabaseId);
	char   *dir = shuffle_storage_dir(root, storage);
	LOCKTAG tag;

	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot write to a shuffle table during recovery")));

	if (shuffle_root_is_outer(root))
		prepare_outer_root(root);

	shuffle_sweep_if_needed();

	/*
	 * Until the transaction ends, a sweep must not take our still empty directory for
	 * a leftover.
	 */
	shuffle_storage_lock_tag(&tag, MyDatabaseId, SHUFFLE_LOCK_DIRECTORIES);
	(void) LockAcquire(&tag, ShareLock, false, false);

	(void) make_directory(root);
	(void) make_directory(database);
	if (make_directory(dir))
		shuffle_xact_own_directory(dir, storage);

	/*
	 * Not only what this call has made: another session may have made the parents and
	 * not synced them yet, or never will because its sync is off.
	 */
	if (shuffle_setting_sync)
	{
		char *parent = pstrdup(root);

		get_parent_directory(parent);
		shuffle_fsync_dir(parent[0] != '\0' ? parent : ".");
		shuffle_fsync_dir(root);
		shuffle_fsync_dir(database);
		pfree(parent);
	}

	pfree(root);
	pfree(database);
	return dir;
}

char *
shuffle_job_prefix(FullTransactionId fxid, SubTransactionId subxid, uint64 nonce)
{
	return psprintf("%016" PRIx64 "-%08x-%016" PRIx64, U64FromFullTransactionId(fxid), subxid,
					nonce);
}

/* The full transaction id a file name begins with; false if it is no name of ours. */
bool
shuffle_name_xid(const char *name, uint64 *fxid)
{
	uint64 value = 0;
	int	   i;

	for (i = 0; i < 16; i++)
	{
		char c = name[i];

		if (c >= '0' && c <= '9')
			value = value << 4 | (uint64) (c - '0');
		else if (c >= 'a' && c <= 'f')
			value = value << 4 | (uint64) (c - 'a' + 10);
		else
			return false;
	}
	*fxid = value;
	return name[16] == '-';
}

char *
shuffle_segment_path(const char *root, const ShuffleStorage *storage, const char *name,
					 ShfLayoutKind layout, uint32 partition)
{
	char *dir = shuffle_storage_dir(root, storage);
	char *path;

	if (layout == SHF_LAYOUT_PARTITION_FILES)
		path = psprintf("%s/%s/p%05u.arrow", dir, name, partition);
	else
		path = psprintf("%s/%s.arrow", dir, name);
	pfree(dir);
	return path;
}

/* Unlike fsync_fname(), a failure is an error of this transaction and never a panic. */
void
shuffle_fsync_dir(const char *path)
{
	(void) fsync_fname_ext(path, true, false, ERROR);
}

/* ---------------------------------------------------------------- removal */

/* opendir() that gives up the server's cached descriptors when there are none left. */
static DIR *
open_dir(const char *path)
{
	DIR *dir = opendir(path);

	if (dir == NULL && (errno == EMFILE || errno == ENFILE))
	{
		closeAllVfds();
		dir = opendir(path);
	}
	return dir;
}

static uint64 remove_entries(const char *dir, const char *prefix, int depth);

/* Removes path, a file or a whole directory; returns how many files went. */
static uint64
remove_path(const char *path, int depth)
{
	struct stat st;
	uint64		removed = 0;

	if (lstat(path, &st) != 0)
	{
		if (errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(), errmsg("could not stat file \"%s\": %m", path)));
		return 0;
	}

	if (!S_ISDIR(st.st_mode))
	{
		if (unlink(path) == 0)
			return 1;
		if (errno != ENOENT)
		{
			shuffle_sweep_wanted = true;
			ereport(LOG,
					(errcode_for_file_access(), errmsg("could not remove file \"%s\": %m", path)));
		}
		return 0;
	}

	if (depth < REMOVE_MAX_DEPTH)
		removed = remove_entries(path, "", depth + 1);
	if (rmdir(path) != 0 && errno != ENOENT)
	{
		shuffle_sweep_wanted = true;
		ereport(LOG,
				(errcode_for_file_access(), errmsg("could not remove directory \"%s\": %m", path)));
	}
	return removed;
}

/* One pass of remove_entries(). */
static uint64
remove_entries_once(const char *dir, const char *prefix, int depth)
{
	size_t		   prefix_len = strlen(prefix);
	uint64		   removed = 0;
	struct dirent *de;
	DIR			  *d = open_dir(dir);

	if (d == NULL)
	{
		if (errno != ENOENT)
		{
			shuffle_sweep_wanted = true;
			ereport(
				LOG,
				(errcode_for_file_access(), errmsg("could not open directory \"%s\": %m", dir)));
		}
		return 0;
	}

	while (errno = 0, (de = readdir(d)) != NULL)
	{
		char path[MAXPGPATH * 2];

		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0 ||
			strncmp(de->d_name, prefix, prefix_len) != 0)
			continue;
		if (snprintf(path, sizeof(path), "%s/%s", dir, de->d_name) < (int) sizeof(path))
			removed += remove_path(path, depth);
	}
	if (errno != 0)
		ereport(LOG,
				(errcode_for_file_access(), errmsg("could not read directory \"%s\": %m", dir)));
	closedir(d);
	return removed;
}

/* Removes what is in dir and begins with prefix; returns how many files went. */
static uint64
remove_entries(const char *dir, const char *prefix, int depth)
{
	uint64 total = 0;
	uint64 removed;

	/* Some file systems skip entries when others are removed while reading. */
	do
	{
		removed = remove_entries_once(dir, prefix, depth);
		total += removed;
	} while (removed > 0);
	return total;
}

void
shuffle_unlink_prefix(const char *dir, const char *prefix)
{
	(void) remove_entries(dir, prefix, 0);
}

void
shuffle_unlink_storage(const char *dir)
{
	(void) remove_path(dir, 0);
}

uint64
shuffle_remove_path(const char *path)
{
	return remove_path(path, 0);
}
