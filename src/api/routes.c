/* Everything that REST serves. Mounted by the daemon's main. */
#include "api/routes.h"

#include "api/api.h"

static const struct route *const tables[] = {
    service_routes, start_page_routes,  sandbox_routes,
    exec_routes,    code_routes,        file_routes,
    signed_routes,  fs_routes,          token_routes,
    oneshot_routes, unsupported_routes, template_routes,
    metrics_routes, prometheus_routes,  limits_routes,
    usage_routes,   budget_routes,      activity_routes,
    NULL,
};

const struct surface rest_surface = {.tables = tables, .explain = unsupported_explain};
