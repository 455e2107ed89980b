/* The schema, as numbered migrations. One that was released is never changed: add another.
 * Each runs in a transaction of its own together with the change of user_version. */
#include "store/sqlite.h"

static const char migration_0[] =
    /* A row with state 10 (SANDBOX_ENDED) is a tombstone: its name is free again. */
    "CREATE TABLE sandboxes ("
    " id TEXT PRIMARY KEY NOT NULL, workspace TEXT NOT NULL, created_wall INTEGER NOT NULL,"
    " name TEXT, template TEXT NOT NULL, tier INTEGER NOT NULL, state INTEGER NOT NULL,"
    " memory INTEGER NOT NULL, disk INTEGER NOT NULL, inodes INTEGER NOT NULL,"
    " cpu_millis INTEGER NOT NULL, pids INTEGER NOT NULL, files INTEGER NOT NULL,"
    " limit_reasons BLOB NOT NULL, flags INTEGER NOT NULL,"
    " timeout_seconds INTEGER NOT NULL, idle_timeout_seconds INTEGER NOT NULL,"
    " started_wall INTEGER NOT NULL, ended_wall INTEGER NOT NULL,"
    " deadline_wall INTEGER NOT NULL, active_wall INTEGER NOT NULL,"
    " environment BLOB, metadata BLOB, mounts BLOB,"
    " end_reason INTEGER NOT NULL, end_message TEXT);"
    "CREATE UNIQUE INDEX sandboxes_name ON sandboxes (workspace, name)"
    " WHERE name IS NOT NULL AND state != 10;"
    "CREATE INDEX sandboxes_created ON sandboxes (workspace, created_wall);"
    "CREATE INDEX sandboxes_ended ON sandboxes (ended_wall) WHERE state = 10;"
    /* AUTOINCREMENT: SQLite remembers the highest key ever used, deleted ones included. */
    "CREATE TABLE execs ("
    " key INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, id TEXT NOT NULL UNIQUE,"
    " sandbox TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,"
    " command TEXT NOT NULL, state INTEGER NOT NULL, flags INTEGER NOT NULL,"
    " head INTEGER NOT NULL, tail INTEGER NOT NULL,"
    " started_wall INTEGER NOT NULL, ended_wall INTEGER NOT NULL,"
    " end INTEGER NOT NULL, code INTEGER NOT NULL, oom_killed INTEGER NOT NULL,"
    " out_total INTEGER NOT NULL, err_total INTEGER NOT NULL, wall_ns INTEGER NOT NULL,"
    " cpu_ns INTEGER NOT NULL, peak_memory INTEGER NOT NULL, left_running INTEGER NOT NULL,"
    " error_kind INTEGER NOT NULL, error_message TEXT);"
    "CREATE INDEX execs_sandbox ON execs (sandbox, key);"
    "CREATE TABLE tokens ("
    " id TEXT PRIMARY KEY NOT NULL, hash BLOB NOT NULL UNIQUE, workspace TEXT NOT NULL,"
    " label TEXT, scopes INTEGER NOT NULL, sandbox TEXT,"
    " created_wall INTEGER NOT NULL, expires_wall INTEGER NOT NULL,"
    " revoked_wall INTEGER NOT NULL);"
    "CREATE INDEX tokens_label ON tokens (label) WHERE revoked_wall = 0;";

static const char migration_1[] =
    /* Since when a paused one's clock stands still; active_wall used to say it. */
    "ALTER TABLE sandboxes ADD COLUMN paused_wall INTEGER NOT NULL DEFAULT 0;"
    "UPDATE sandboxes SET paused_wall = active_wall WHERE state IN (3, 4, 5);"
    /* One for each way to list, in the order of the list, so that nothing is ever sorted. State and
     * name are in those with tombstones: what a filter leaves out costs no look at the row. */
    "DROP INDEX sandboxes_created;"
    "CREATE INDEX sandboxes_by_workspace ON sandboxes (workspace, created_wall, id, state, name);"
    "CREATE INDEX sandboxes_by_time ON sandboxes (created_wall, id, state, name);"
    "CREATE INDEX sandboxes_live_by_workspace ON sandboxes (workspace, created_wall, id)"
    " WHERE state != 10;"
    "CREATE INDEX sandboxes_live_by_time ON sandboxes (created_wall, id) WHERE state != 10;";

_Static_assert(SANDBOX_ENDED == 10 && SANDBOX_PAUSING == 3 && SANDBOX_PAUSED == 4 &&
		   SANDBOX_RESUMING == 5,
	       "the schema knows the numbers");

const char *const store_migrations[] = {migration_0, migration_1};
const int store_version = ARRAY_SIZE(store_migrations);
