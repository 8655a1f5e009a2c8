/*
 * compat.h
 *	  Differences between PostgreSQL 15, 16, 17 and 18, in one place.
 */
#ifndef SHUFFLE_COMPAT_H
#define SHUFFLE_COMPAT_H

#include "postgres.h"

#include "utils/rel.h"

#if PG_VERSION_NUM < 150000
#error "shuffle_ext needs PostgreSQL 15 or later"
#endif

#if PG_VERSION_NUM >= 160000
#include "storage/relfilelocator.h"
#include "varatt.h"
#else
#include "storage/relfilenode.h"
typedef RelFileNode RelFileLocator;
typedef Oid RelFileNumber;
#define rd_locator rd_node
#define spcOid spcNode
#define dbOid dbNode
#define relNumber relNode
#define InvalidRelFileNumber InvalidOid
#define RelFileNumberIsValid(n) OidIsValid(n)
#endif

#endif							/* SHUFFLE_COMPAT_H */
