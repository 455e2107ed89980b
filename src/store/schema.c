/* The schema, as numbered migrations. A released one is never changed: add another. Each runs in
 * a transaction of its own, together with the change of user_version. */
#include "store/sqlite.h"

static const char migration_0[] =
    /* A row with state 10 (SANDBOX_ENDED) is a tombstone, and its name is free again. */
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
    /* AUTOINCREMENT: SQLite remembers the highest key ever used, including deleted ones. */
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
    /* When the clock of a paused sandbox stopped; active_wall used to record it. */
    "ALTER TABLE sandboxes ADD COLUMN paused_wall INTEGER NOT NULL DEFAULT 0;"
    "UPDATE sandboxes SET paused_wall = active_wall WHERE state IN (3, 4, 5);"
    /* One index for each way to list, in the order of the list, so that nothing is sorted. Indexes
     * with tombstones include state and name, so that rows that a filter rejects are not read. */
    "DROP INDEX sandboxes_created;"
    "CREATE INDEX sandboxes_by_workspace ON sandboxes (workspace, created_wall, id, state, name);"
    "CREATE INDEX sandboxes_by_time ON sandboxes (created_wall, id, state, name);"
    "CREATE INDEX sandboxes_live_by_workspace ON sandboxes (workspace, created_wall, id)"
    " WHERE state != 10;"
    "CREATE INDEX sandboxes_live_by_time ON sandboxes (created_wall, id) WHERE state != 10;";

static const char migration_2[] =
    "ALTER TABLE sandboxes ADD COLUMN labels BLOB;"
    "ALTER TABLE sandboxes ADD COLUMN auto_pause_seconds INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandboxes ADD COLUMN options INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandboxes ADD COLUMN drain_wall INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandboxes ADD COLUMN template_asked TEXT;"
    "ALTER TABLE sandboxes ADD COLUMN boot_origin INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandboxes ADD COLUMN boot_us INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE execs ADD COLUMN timeout_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE execs ADD COLUMN context TEXT;"
    "ALTER TABLE execs ADD COLUMN token TEXT;"
    /* The activity of every sandbox. `sequence` orders all entries and is never reused: it is the
     * id of the event. `number` counts within a sandbox, where each entry carries the hash of the
     * one before. An entry may outlive its sandbox's tombstone: it has a retention time of its
     * own. */
    "CREATE TABLE activity ("
    " sequence INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, workspace TEXT NOT NULL,"
    " sandbox TEXT NOT NULL, number INTEGER NOT NULL, wall INTEGER NOT NULL,"
    " kind INTEGER NOT NULL, actor TEXT NOT NULL, exec TEXT, details BLOB,"
    " previous BLOB NOT NULL, hash BLOB NOT NULL);"
    "CREATE UNIQUE INDEX activity_sandbox ON activity (sandbox, number);"
    "CREATE INDEX activity_workspace ON activity (workspace, sequence);"
    "CREATE INDEX activity_exec ON activity (exec) WHERE kind = 20;"
    /* Sequence up to which entries of a workspace were pruned. */
    "CREATE TABLE activity_pruned (workspace TEXT PRIMARY KEY NOT NULL, sequence INTEGER NOT NULL);"
    /* Results of requests with an Idempotency-Key; `answer` is that of a one-shot run. */
    "CREATE TABLE requests ("
    " workspace TEXT NOT NULL, key TEXT NOT NULL, operation TEXT NOT NULL, digest BLOB NOT NULL,"
    " sandbox TEXT, exec TEXT, answer BLOB, created_wall INTEGER NOT NULL,"
    " PRIMARY KEY (workspace, key));"
    "CREATE INDEX requests_created ON requests (created_wall);"
    /* Code contexts: each is the exec of its interpreter. */
    "CREATE TABLE contexts ("
    " id TEXT PRIMARY KEY NOT NULL,"
    " sandbox TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,"
    " exec TEXT NOT NULL, control TEXT NOT NULL, language INTEGER NOT NULL,"
    " created_wall INTEGER NOT NULL, cells INTEGER NOT NULL, cell_wall INTEGER NOT NULL,"
    " timeout_ms INTEGER NOT NULL, control_begin INTEGER NOT NULL, out_begin INTEGER NOT NULL,"
    " err_begin INTEGER NOT NULL, ended_wall INTEGER NOT NULL, reason TEXT, cwd TEXT, user TEXT,"
    " environment BLOB);"
    "CREATE INDEX contexts_sandbox ON contexts (sandbox);"
    /* What each sandbox has used, hour by hour (since 1970, UTC). The rows outlive the tombstones.
     * The newest row of a sandbox records until when usage is counted. */
    "CREATE TABLE usage ("
    " sandbox TEXT NOT NULL, hour INTEGER NOT NULL, workspace TEXT NOT NULL, name TEXT,"
    " alive_ns INTEGER NOT NULL, paused_ns INTEGER NOT NULL, cpu_ns INTEGER NOT NULL,"
    " memory_byte_seconds INTEGER NOT NULL, disk_byte_seconds INTEGER NOT NULL,"
    " snapshot_byte_seconds INTEGER NOT NULL, execs INTEGER NOT NULL,"
    " counted_wall INTEGER NOT NULL, cpu_seen_ns INTEGER NOT NULL, disk_seen INTEGER NOT NULL,"
    " PRIMARY KEY (sandbox, hour)) WITHOUT ROWID;"
    /* Each index has the order of a list, so that a page reads only its own rows. */
    "CREATE INDEX usage_sandboxes ON usage (workspace, sandbox, hour);"
    "CREATE INDEX usage_workspaces ON usage (workspace, hour);"
    "CREATE INDEX usage_hour ON usage (hour);"
    /* What a workspace has spent in a period, and what it may spend. */
    "CREATE TABLE spent ("
    " workspace TEXT NOT NULL, what INTEGER NOT NULL, period INTEGER NOT NULL,"
    " period_wall INTEGER NOT NULL, amount INTEGER NOT NULL,"
    " PRIMARY KEY (workspace, what, period));"
    "CREATE TABLE budgets ("
    " workspace TEXT NOT NULL, what INTEGER NOT NULL, period INTEGER NOT NULL,"
    " maximum INTEGER NOT NULL, PRIMARY KEY (workspace, what, period));"
    "CREATE INDEX tokens_sandbox ON tokens (sandbox) WHERE sandbox IS NOT NULL;"
    /* Keys of this installation, which sign URLs and receipts. */
    "CREATE TABLE secrets (name TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL);";

static const char migration_3[] =
    /* The context ends with its cell. */
    "ALTER TABLE contexts ADD COLUMN once INTEGER NOT NULL DEFAULT 0;";

static const char migration_4[] =
    /* The id by which the sender of the last cell finds it again. */
    "ALTER TABLE contexts ADD COLUMN cell TEXT;";

static const char migration_5[] =
    /* The digest of the template at the last start, and the network. */
    "ALTER TABLE sandboxes ADD COLUMN rootfs_digest TEXT;"
    "ALTER TABLE sandboxes ADD COLUMN network INTEGER NOT NULL DEFAULT 0;";

static const char migration_6[] =
    /* Sandboxes that are ready and have no owner. */
    "CREATE TABLE pool ("
    " id TEXT PRIMARY KEY NOT NULL, ready INTEGER NOT NULL, stamp INTEGER NOT NULL,"
    " tier INTEGER NOT NULL, network INTEGER NOT NULL, template TEXT NOT NULL,"
    " memory INTEGER NOT NULL, disk INTEGER NOT NULL, inodes INTEGER NOT NULL,"
    " cpu_millis INTEGER NOT NULL, pids INTEGER NOT NULL, files INTEGER NOT NULL,"
    " limit_reasons BLOB NOT NULL, rootfs_digest TEXT NOT NULL, cpu_ns INTEGER NOT NULL);"
    /* Sandboxes of the earlier pool have their environment in their init. */
    "UPDATE sandboxes SET boot_origin = 0;";

static const char migration_7[] =
    /* An exec's key is a counter of its sandbox. An existing sandbox continues after the highest
     * key that any sandbox had, because its init, its rows and the cursors of its logs use the old
     * keys. */
    "ALTER TABLE sandboxes ADD COLUMN last_exec_key INTEGER NOT NULL DEFAULT 0;"
    "UPDATE sandboxes SET last_exec_key ="
    " COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'execs'), 0);"
    "CREATE TABLE execs_by_sandbox ("
    " sandbox TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,"
    " key INTEGER NOT NULL, id TEXT NOT NULL UNIQUE,"
    " command TEXT NOT NULL, state INTEGER NOT NULL, flags INTEGER NOT NULL,"
    " head INTEGER NOT NULL, tail INTEGER NOT NULL,"
    " started_wall INTEGER NOT NULL, ended_wall INTEGER NOT NULL,"
    " end INTEGER NOT NULL, code INTEGER NOT NULL, oom_killed INTEGER NOT NULL,"
    " out_total INTEGER NOT NULL, err_total INTEGER NOT NULL, wall_ns INTEGER NOT NULL,"
    " cpu_ns INTEGER NOT NULL, peak_memory INTEGER NOT NULL, left_running INTEGER NOT NULL,"
    " error_kind INTEGER NOT NULL, error_message TEXT,"
    " timeout_ms INTEGER NOT NULL DEFAULT 0, context TEXT, token TEXT,"
    " PRIMARY KEY (sandbox, key));"
    "INSERT INTO execs_by_sandbox SELECT sandbox, key, id, command, state, flags, head, tail,"
    " started_wall, ended_wall, end, code, oom_killed, out_total, err_total, wall_ns, cpu_ns,"
    " peak_memory, left_running, error_kind, error_message, timeout_ms, context, token FROM execs"
    " WHERE sandbox IN (SELECT id FROM sandboxes);"
    "DROP TABLE execs;"
    "ALTER TABLE execs_by_sandbox RENAME TO execs;"
    /* The key of a row that is deleted is never used again. */
    "CREATE TRIGGER execs_deleted AFTER DELETE ON execs BEGIN"
    " UPDATE sandboxes SET last_exec_key = OLD.key"
    " WHERE id = OLD.sandbox AND last_exec_key < OLD.key; END;";

static const char migration_8[] =
    /* The digest identifies layers of this kind. */
    "ALTER TABLE sandboxes ADD COLUMN rootfs_kind INTEGER NOT NULL DEFAULT 1;";

_Static_assert(ROOTFS_HOST == 1, "the schema knows the number");
_Static_assert(SANDBOX_ENDED == 10 && SANDBOX_PAUSING == 3 && SANDBOX_PAUSED == 4 &&
		   SANDBOX_RESUMING == 5,
	       "the schema knows the numbers");

const char *const store_migrations[] = {migration_0, migration_1, migration_2,
					migration_3, migration_4, migration_5,
					migration_6, migration_7, migration_8};
const int store_version = ARRAY_SIZE(store_migrations);
