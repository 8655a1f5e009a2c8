/*
 * compat.h
 *	  Differences between PostgreSQL 15, 16, 17 and 18, in one place.
 */
#ifndef SHUFFLE_COMPAT_H
#define SHUFFLE_COMPAT_H

#include "postgres.h"

#include "fmgr.h"
#include "storage/lock.h"
#include "utils/rel.h"

#if PG_VERSION_NUM < 150000
#error "shuffle_ext needs PostgreSQL 15 or later"
#endif

/* The library is built with hidden visibility, for which 15 makes no provision. */
#if PG_VERSION_NUM < 160000
#undef PGDLLEXPORT
#define PGDLLEXPORT __attribute__((visibility("default")))

/* It exports the finfo function only, not the function itself. */
#undef PG_FUNCTION_INFO_V1
#define PG_FUNCTION_INFO_V1(funcname) \
	extern PGDLLEXPORT Datum				  funcname(PG_FUNCTION_ARGS); \
	extern PGDLLEXPORT const Pg_finfo_record *CppConcat(pg_finfo_, funcname)(void); \
	const Pg_finfo_record					 *CppConcat(pg_finfo_, funcname)(void) \
	{ \
		static const Pg_finfo_record my_finfo = {1}; \
		return &my_finfo; \
	} \
	extern int no_such_variable
#endif

#if PG_VERSION_NUM >= 160000
#include "storage/relfilelocator.h"
#include "utils/relfilenumbermap.h"
#include "varatt.h"
#else
#include "storage/relfilenode.h"
#include "utils/relfilenodemap.h"
typedef RelFileNode RelFileLocator;
typedef Oid			RelFileNumber;
#define rd_locator				rd_node
#define spcOid					spcNode
#define dbOid					dbNode
#define relNumber				relNode
#define InvalidRelFileNumber	InvalidOid
#define RelFileNumberIsValid(n) OidIsValid(n)
#define RelidByRelfilenumber	RelidByRelfilenode
#endif

#if PG_VERSION_NUM < 170000
#define shared_blk_read_time				blk_read_time
#define LockHeldByMe(tag, mode, orstronger) LockHeldByMe(tag, mode)
#endif

/* 18 spells it pg_noreturn, in front. */
#ifndef pg_attribute_noreturn
#define pg_attribute_noreturn() __attribute__((noreturn))
#endif

/* 18 has no execute_once: it finds out by itself. */
#if PG_VERSION_NUM >= 180000
#define ExecutorRunOnce(desc) ExecutorRun(desc, ForwardScanDirection, 0)
#define SHUFFLE_RUN_ONCE_PARAM
#define SHUFFLE_RUN_ONCE_ARG
#else
#define SHUFFLE_RUN_ONCE_PARAM , bool execute_once
#define SHUFFLE_RUN_ONCE_ARG   , execute_once
#define ExecutorRunOnce(desc)  ExecutorRun(desc, ForwardScanDirection, 0, true)
#endif

#if PG_VERSION_NUM < 160000
#define mod_since_analyze changes_since_analyze
#endif

/* 18 has moved what an extension needs to add to EXPLAIN. */
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#else
#include "commands/explain.h"
#endif

/* Extensions name themselves since 18 (pg_get_loaded_modules). */
#if PG_VERSION_NUM >= 180000
#define SHUFFLE_MODULE_MAGIC PG_MODULE_MAGIC_EXT(.name = "shuffle_ext", .version = "1.0")
#else
#define SHUFFLE_MODULE_MAGIC PG_MODULE_MAGIC
#endif

/* 16 has one check of ownership and privileges for most kinds of objects. */
#if PG_VERSION_NUM >= 160000
#define pg_namespace_aclcheck(nsp, roleid, mode) \
	object_aclcheck(NamespaceRelationId, nsp, roleid, mode)
#define pg_proc_aclcheck(funcid, roleid, mode) \
	object_aclcheck(ProcedureRelationId, funcid, roleid, mode)
#define pg_class_ownercheck(relid, roleid) object_ownercheck(RelationRelationId, relid, roleid)
#endif

/* 18 has generated columns that are not stored: NULL in every tuple. */
#if PG_VERSION_NUM >= 180000
#define shuffle_is_virtual(att) ((att)->attgenerated == ATTRIBUTE_GENERATED_VIRTUAL)
#else
#define shuffle_is_virtual(att) ((void) (att), false)
#endif

#if PG_VERSION_NUM >= 170000
#define shuffle_estimate_array_length(root, node) estimate_array_length(root, node)
#else
#define shuffle_estimate_array_length(root, node) estimate_array_length(node)
#endif

/* 17 has a privilege for maintenance, and wants it done on a fixed search path. */
#if PG_VERSION_NUM >= 170000
#define shuffle_may_maintain(relid, roleid) \
	(pg_class_aclcheck(relid, roleid, ACL_MAINTAIN) == ACLCHECK_OK)
#else
#define shuffle_may_maintain(relid, roleid) pg_class_ownercheck(relid, roleid)
#define RestrictSearchPath()				((void) 0)
#endif

/* Table access methods and tuple slots. */
#if PG_VERSION_NUM < 160000
#define relation_set_new_filelocator relation_set_new_filenode
typedef bool ShuffleUpdateIndexes;
#else
#define ShuffleUpdateIndexes TU_UpdateIndexes
#endif

#define SHUFFLE_SLOT_HAS_XACT_CHECK (PG_VERSION_NUM >= 170000)

#if PG_VERSION_NUM >= 180000
#define SHUFFLE_MINIMAL_EXTRA_PARAM				 , Size extra
#define SHUFFLE_MINIMAL_EXTRA_ARG				 , extra
#define shuffle_parallelscan_set_rel(pscan, rel) ((pscan)->phs_locator = (rel)->rd_locator)
#define shuffle_update_relstats(rel, pages, tuples, xid, multi) \
	vac_update_relstats(rel, pages, tuples, 0, 0, false, xid, multi, NULL, NULL, false)
#define shuffle_report_vacuum(rel, rows, dead, start) \
	pgstat_report_vacuum(RelationGetRelid(rel), false, rows, dead, start)
#else
#define SHUFFLE_MINIMAL_EXTRA_PARAM
#define SHUFFLE_MINIMAL_EXTRA_ARG
#define shuffle_parallelscan_set_rel(pscan, rel) ((pscan)->phs_relid = RelationGetRelid(rel))
#define shuffle_update_relstats(rel, pages, tuples, xid, multi) \
	vac_update_relstats(rel, pages, tuples, 0, false, xid, multi, NULL, NULL, false)
#define shuffle_report_vacuum(rel, rows, dead, start) \
	((void) (start), pgstat_report_vacuum(RelationGetRelid(rel), false, rows, dead))
#endif

/*
 * ANALYZE hands over page numbers one by one (a macro of two parameters), or from
 * 17 on in a stream; shuffle_next_page(&source, &page) takes the next one.
 */
#if PG_VERSION_NUM >= 170000
#include "storage/read_stream.h"
#define SHUFFLE_ANALYZE_SOURCE ReadStream *source
#define shuffle_next_page(source, page) \
	(*(page) = read_stream_next_block(*(source), &(BufferAccessStrategy){NULL}), \
	 *(page) != InvalidBlockNumber)
#else
#define SHUFFLE_ANALYZE_SOURCE BlockNumber source, BufferAccessStrategy strategy
#define shuffle_next_page(source, page) \
	(*(page) = *(source), *(source) = InvalidBlockNumber, *(page) != InvalidBlockNumber)
#endif

#endif /* SHUFFLE_COMPAT_H */
