/* The store's fault points (base/fault.h): every write. Empty without -Dfault_points=true. */
#pragma once

#include "base/fault.h"
#include "store/sqlite.h"

#ifdef CAISSON_FAULT_POINTS

/* Writes of other things than rows. */
enum { WRITE_BUILD = STATEMENT_COUNT, WRITE_INSTALL, WRITE_MIGRATION, WRITE_COUNT };

void store_fault_write(unsigned number, enum fault_moment moment);
/* From here on the process aborts when a row is written outside a fault point. */
void store_fault_watch_rows(sqlite3 *database);
#define FAULT_WRITE(number, moment) store_fault_write(number, FAULT_##moment)
#define FAULT_WATCH_ROWS(database) store_fault_watch_rows(database)

#else

#define FAULT_WRITE(number, moment) ((void)0)
#define FAULT_WATCH_ROWS(database) ((void)0)

#endif
