/* The routes of sandboxes. */
#include "edge/fields/sandbox_fields.h"
#include "api/routes.h"

#include "api/sandbox/sandboxes.h"

const struct route sandbox_routes[] = {
    {"POST", "/v1/sandboxes", WRITE, ROUTE_UNBOUND | ROUTE_JSON, sandbox_post,
     .body = sandbox_create_fields},
    {"GET", "/v1/sandboxes", READ, 0, sandboxes_get, sandboxes_query},
    {"GET", SB, READ, 0, sandbox_get},
    {"PATCH", SB, WRITE, ROUTE_SANDBOX | ROUTE_JSON, sandbox_patch, .body = sandbox_change_fields},
    {"DELETE", SB, WRITE, ROUTE_SANDBOX, sandbox_delete_call},
    {"POST", SB "/stop", WRITE, ROUTE_SANDBOX, sandbox_stop_post},
    {"POST", SB "/start", WRITE, ROUTE_SANDBOX | ROUTE_JSON, sandbox_start_post,
     .body = sandbox_start_fields},
    {"POST", SB "/pause", WRITE, ROUTE_SANDBOX, sandbox_pause_post},
    {"POST", SB "/resume", WRITE, ROUTE_SANDBOX, sandbox_resume_post},
    {"POST", SB "/hibernate", WRITE, ROUTE_SANDBOX, sandbox_hibernate_post},
    {"POST", SB "/wake", WRITE, ROUTE_SANDBOX, sandbox_wake_post},
    {"POST", SB "/wait", READ, 0, sandbox_wait_call, sandbox_wait_query},
    {"GET", SB "/wait", READ, 0, sandbox_wait_call, sandbox_wait_query},
    {"POST", SB "/drain", WRITE, ROUTE_SANDBOX | ROUTE_JSON, sandbox_drain_post,
     .body = sandbox_drain_fields},
    {"GET", SB "/lifecycle", READ, ROUTE_SANDBOX, sandbox_lifecycle_get},
    {"PATCH", SB "/lifecycle", WRITE, ROUTE_SANDBOX | ROUTE_JSON, sandbox_lifecycle_patch,
     .body = sandbox_lifecycle_fields},
    {"POST", "/v1/sandboxes/bulk", WRITE, ROUTE_JSON, sandboxes_bulk_post,
     .body = sandboxes_bulk_fields},
    {0},
};
