/* The store's fault points: called by sqlite.c around every write. Built only with
 * -Dfault_points=true. */
#include "store/fault.h"

#include <stdlib.h>

/* NULL for statements that only read. */
static const char *fault_write_name(unsigned number)
{
	if (number >= STATEMENT_COUNT)
		return number == WRITE_BUILD     ? "build"
		       : number == WRITE_INSTALL ? "install"
						 : "migration";
	switch ((enum statement)number) {
	case STATEMENT_SANDBOX_INSERT:
		return "sandbox_insert";
	case STATEMENT_POOL_PUT:
		return "pool_put";
	case STATEMENT_POOL_DELETE:
		return "pool_delete";
	case STATEMENT_SANDBOX_UPDATE:
		return "sandbox_update";
	case STATEMENT_SANDBOX_PRUNE_EXECS:
		return "sandbox_prune_execs";
	case STATEMENT_SANDBOX_PRUNE:
		return "sandbox_prune";
	case STATEMENT_EXEC_INSERT:
		return "exec_insert";
	case STATEMENT_EXEC_UPDATE:
		return "exec_update";
	case STATEMENT_EXEC_DELETE:
		return "exec_delete";
	case STATEMENT_TOKEN_INSERT:
		return "token_insert";
	case STATEMENT_TOKEN_REVOKE:
		return "token_revoke";
	case STATEMENT_TOKEN_REVOKE_LABEL:
		return "token_revoke_label";
	case STATEMENT_SECRET_INSERT:
		return "secret_insert";
	case STATEMENT_REQUEST_PUT:
		return "request_put";
	case STATEMENT_REQUEST_DELETE:
		return "request_delete";
	case STATEMENT_REQUEST_PRUNE:
		return "request_prune";
	case STATEMENT_USAGE_PUT:
		return "usage_put";
	case STATEMENT_USAGE_PRUNE:
		return "usage_prune";
	case STATEMENT_SPENT_PUT:
		return "spent_put";
	case STATEMENT_BUDGET_PUT:
		return "budget_put";
	case STATEMENT_BUDGET_DELETE:
		return "budget_delete";
	case STATEMENT_TOKEN_REVOKE_SANDBOX:
		return "token_revoke_sandbox";
	case STATEMENT_COMMIT:
		return "commit";
	case STATEMENT_ACTIVITY_INSERT:
		return "activity_insert";
	case STATEMENT_ACTIVITY_DELETE:
		return "activity_prune";
	case STATEMENT_ACTIVITY_MARK_PRUNED:
		return "activity_mark_pruned";
	case STATEMENT_CONTEXT_INSERT:
		return "context_insert";
	case STATEMENT_CONTEXT_UPDATE:
		return "context_update";
	case STATEMENT_CONTEXT_DELETE:
		return "context_delete";
	case STATEMENT_BEGIN:
	case STATEMENT_ROLLBACK:
	case STATEMENT_ACTIVITY_PAGE:
	case STATEMENT_ACTIVITY_PAGE_LAST:
	case STATEMENT_ACTIVITY_STARTED:
	case STATEMENT_ACTIVITY_ENDS:
	case STATEMENT_ACTIVITY_LAST:
	case STATEMENT_ACTIVITY_PRUNED:
	case STATEMENT_ACTIVITY_OLDEST:
	case STATEMENT_ACTIVITY_FIRST:
	case STATEMENT_CONTEXT_EACH:
	case STATEMENT_SANDBOX_GET:
	case STATEMENT_SANDBOX_PAGE:
	case STATEMENT_SANDBOX_PAGE_LAST:
	case STATEMENT_EXEC_GET:
	case STATEMENT_EXEC_EACH:
	case STATEMENT_EXEC_OLDER:
	case STATEMENT_EXEC_NEWER:
	case STATEMENT_TOKEN_BY_HASH:
	case STATEMENT_TOKEN_EACH:
	case STATEMENT_SECRET_GET:
	case STATEMENT_REQUEST_GET:
	case STATEMENT_USAGE_LAST:
	case STATEMENT_USAGE_BY_SANDBOX:
	case STATEMENT_USAGE_BY_WORKSPACE:
	case STATEMENT_USAGE_ALL_BY_SANDBOX:
	case STATEMENT_USAGE_ALL_BY_WORKSPACE:
	case STATEMENT_SPENT_EACH:
	case STATEMENT_BUDGET_EACH:
	case STATEMENT_TOKEN_BY_ID:
	case STATEMENT_POOL_HAS:
	case STATEMENT_POOL_EACH:
	case STATEMENT_COUNT:
		break;
	}
	return NULL;
}
FAULT_SET(store_writes, "store", fault_write_name, WRITE_COUNT);

static bool at_a_point;

void store_fault_write(unsigned number, enum fault_moment moment)
{
	at_a_point = moment == FAULT_BEFORE && fault_write_name(number);
	fault_point(&store_writes, number, moment);
}

/* A row was written without store_write(), or by a statement without a name above. */
static void on_row(void *data UNUSED, int what UNUSED, const char *schema UNUSED,
		   const char *table UNUSED, sqlite3_int64 row UNUSED)
{
	if (!at_a_point)
		abort();
}

void store_fault_watch_rows(sqlite3 *database)
{
	sqlite3_update_hook(database, on_row, NULL);
}
