/* The tables of routes: each resource has its own, beside its handlers. A new resource is a file
 * with its handlers and its table, one line below and one in routes.c. */
#pragma once

#include "edge/call.h"

#define SB "/v1/sandboxes/{sandbox}"

extern const struct route service_routes[];    /* health.c */
extern const struct route start_page_routes[]; /* start_page.c */
extern const struct route sandbox_routes[];
extern const struct route oneshot_routes[];  /* api/exec/oneshot.c */
extern const struct route template_routes[]; /* api/sandbox/templates.c */
extern const struct route
    unsupported_routes[]; /* api/sandbox/unsupported.c: what this version does not have */
/* Also there: replaces `error` by UNSUPPORTED if the path belongs to such a feature. It reveals
 * nothing about a sandbox of another principal. */
void unsupported_explain(struct call *call, const struct http_request *request,
			 struct error *error);
extern const struct route exec_routes[];
extern const struct route code_routes[]; /* api/code/code.c */
extern const struct route file_routes[];
extern const struct route signed_routes[]; /* api/file/signed_urls.c */
extern const struct route fs_routes[];     /* api/file/fs.c */
extern const struct route token_routes[];  /* api/account/tokens.c */
extern const struct route activity_routes[];
extern const struct route metrics_routes[];
extern const struct route prometheus_routes[];
extern const struct route limits_routes[];
extern const struct route usage_routes[];
extern const struct route budget_routes[];
