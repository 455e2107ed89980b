/* Routes of features that this version does not have. Each is refused with 501 and the alternative,
 * so that a client of another service learns that the feature is missing, and that its request was
 * not wrong. This covers the routes of the table, which are also in the API's description, and all
 * paths below them. Called by the router; does not block. When a feature is implemented, its lines
 * here are removed. */
#include "api/routes.h"

#include <string.h>

#include "base/text.h"

#define NO_NETWORK "a sandbox has no network; commands and files are how it is reached"

/* By the first words of a path, after a sandbox's id or at the top. Paths of features with other
 * existing routes (`templates`) are only refused by the table of routes. */
static const struct {
	const char *words, *instead;
} features[] = {
    {"fork", "a sandbox cannot be copied while it runs; create another"},
    {"fork-tree", "a sandbox cannot be copied while it runs; create another"},
    {"promote", "a sandbox cannot be copied while it runs; create another"},
    {"snapshots", "there are no snapshots; `pause` keeps a sandbox as it is, memory included"},
    {"ports", NO_NETWORK},
    {"proxy", NO_NETWORK},
    {"preview-token", NO_NETWORK},
    {"p", NO_NETWORK},
    {"network", NO_NETWORK},
    {"network-policy", NO_NETWORK},
    {"network-policies", NO_NETWORK},
    {"networks", NO_NETWORK},
    {"egress", NO_NETWORK},
    {"lsp", "there are no language servers; `exec` runs one"},
    {"volumes", "there are no volumes; `mounts` gives folders of the host, over the Unix socket"},
    {"images", "there are no images; GET /v1/templates lists what a sandbox can begin with"},
    {"templates/build", "templates cannot be built or removed; GET /v1/templates lists them"},
    {"templates/builds", "templates cannot be built or removed; GET /v1/templates lists them"},
    {"functions", "there are no functions; POST /v1/run runs a command in a sandbox of its own"},
    {"schedules", "there are no schedules; cron with POST /v1/run does it"},
    {"databases", "there are no databases; run one in a sandbox"},
    {"apps", "there are no apps; run one in a sandbox"},
    {"preview-repos", "there are no apps; run one in a sandbox"},
    {"repos", "there are no apps; run one in a sandbox"},
    {"me", "there are no users; GET /v1/tokens lists the tokens"},
    {"audit", "GET /v1/events has what happened, and each sandbox its `activity`"},
    {"stats", "GET /v1/metrics has what there is to count"},
    {"metrics/overview", "GET /v1/metrics has what there is to count"},
    {"metrics/sandbox", "GET /v1/sandboxes/{sandbox}/metrics has what there is to count"},
};

/* The alternative to the feature at or below that path. */
static const char *feature_instead(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(features); i++) {
		size_t size = strlen(features[i].words);
		if (text_starts(path, features[i].words) && (path[size] == '/' || !path[size]))
			return features[i].instead;
	}
	return NULL;
}

static void unsupported_reply(struct call *call)
{
	const char *path = call->route->pattern;
	struct error error;
	path += text_starts(path, SB "/") ? strlen(SB "/") : strlen("/v1/");
	const char *instead = feature_instead(path);
	error_set(&error, ERROR_UNSUPPORTED, "%s %s: %s", call->route->method, call->route->pattern,
		  instead ? instead : "templates cannot be removed; GET /v1/templates lists them");
	reply_error(call, &error);
}

void unsupported_explain(struct call *call, const struct http_request *request, struct error *error)
{
	static const char top[] = "/v1/", sandboxes[] = "/v1/sandboxes/";
	const char *path = request->path;
	char name[CALL_PARAMETER_MAX];
	struct sandbox *sandbox;
	if (!text_starts(path, sandboxes)) {
		const char *instead =
		    text_starts(path, top) ? feature_instead(path + strlen(top)) : NULL;
		if (instead)
			error_set(error, ERROR_UNSUPPORTED, "%s", instead);
		return;
	}
	path += strlen(sandboxes);
	size_t size = strcspn(path, "/");
	const char *instead = path[size] ? feature_instead(path + size + 1) : NULL;
	if (!instead || size == 0 || size >= sizeof(name))
		return;
	memcpy(name, path, size);
	name[size] = '\0';
	if (sandbox_find(call->core, &call->principal, name, &sandbox, error) == 0)
		error_set(error, ERROR_UNSUPPORTED, "%s", instead);
}

/* The query is not checked, since the feature does not exist. */
#define SANDBOX (ROUTE_SANDBOX | ROUTE_ANY_QUERY)

const struct route unsupported_routes[] = {
    {"POST", SB "/fork", WRITE, SANDBOX, unsupported_reply},
    {"POST", SB "/fork-tree", WRITE, SANDBOX, unsupported_reply},
    {"POST", SB "/promote", WRITE, SANDBOX, unsupported_reply},
    {"GET", SB "/snapshots", READ, SANDBOX, unsupported_reply},
    {"POST", SB "/snapshots", WRITE, SANDBOX, unsupported_reply},
    {"GET", SB "/ports", READ, SANDBOX, unsupported_reply},
    {"POST", SB "/ports", WRITE, SANDBOX, unsupported_reply},
    {"DELETE", SB "/ports/{port}", WRITE, SANDBOX, unsupported_reply},
    {"GET", SB "/proxy/{port}", WRITE, SANDBOX, unsupported_reply},
    {"POST", SB "/proxy/{port}", WRITE, SANDBOX, unsupported_reply},
    {"PUT", SB "/proxy/{port}", WRITE, SANDBOX, unsupported_reply},
    {"PATCH", SB "/proxy/{port}", WRITE, SANDBOX, unsupported_reply},
    {"DELETE", SB "/proxy/{port}", WRITE, SANDBOX, unsupported_reply},
    {"POST", SB "/preview-token", WRITE, SANDBOX, unsupported_reply},
    {"GET", SB "/lsp/{language}", WRITE, SANDBOX, unsupported_reply},
    {"GET", "/v1/p/{token}", READ, ROUTE_ANY_QUERY, unsupported_reply},
    {"GET", "/v1/snapshots", READ, ROUTE_ANY_QUERY, unsupported_reply},
    {"GET", "/v1/snapshots/{snapshot}", READ, ROUTE_ANY_QUERY, unsupported_reply},
    {"DELETE", "/v1/snapshots/{snapshot}", WRITE, ROUTE_ANY_QUERY, unsupported_reply},
    {"GET", "/v1/volumes", READ, ROUTE_ANY_QUERY, unsupported_reply},
    {"POST", "/v1/volumes", WRITE, ROUTE_ANY_QUERY, unsupported_reply},
    {"GET", "/v1/volumes/{volume}", READ, ROUTE_ANY_QUERY, unsupported_reply},
    {"DELETE", "/v1/volumes/{volume}", WRITE, ROUTE_ANY_QUERY, unsupported_reply},
    {"GET", "/v1/images", READ, ROUTE_ANY_QUERY, unsupported_reply},
    {"POST", "/v1/images", WRITE, ROUTE_ANY_QUERY, unsupported_reply},
    {"GET", "/v1/images/{image}", READ, ROUTE_ANY_QUERY, unsupported_reply},
    {"DELETE", "/v1/images/{image}", WRITE, ROUTE_ANY_QUERY, unsupported_reply},
    {"POST", "/v1/templates/build", WRITE, ROUTE_ANY_QUERY, unsupported_reply},
    {"GET", "/v1/templates/builds", READ, ROUTE_ANY_QUERY, unsupported_reply},
    {"GET", "/v1/templates/builds/{build}", READ, ROUTE_ANY_QUERY, unsupported_reply},
    {"GET", "/v1/templates/builds/{build}/logs", READ, ROUTE_ANY_QUERY, unsupported_reply},
    {"DELETE", "/v1/templates/{template}", WRITE, ROUTE_ANY_QUERY, unsupported_reply},
    {"GET", "/v1/functions", READ, ROUTE_ANY_QUERY, unsupported_reply},
    {"POST", "/v1/functions", WRITE, ROUTE_ANY_QUERY, unsupported_reply},
    {"GET", "/v1/functions/{function}", READ, ROUTE_ANY_QUERY, unsupported_reply},
    {"PATCH", "/v1/functions/{function}", WRITE, ROUTE_ANY_QUERY, unsupported_reply},
    {"DELETE", "/v1/functions/{function}", WRITE, ROUTE_ANY_QUERY, unsupported_reply},
    {"POST", "/v1/functions/{function}/invoke", WRITE, ROUTE_ANY_QUERY, unsupported_reply},
    {"GET", "/v1/schedules", READ, ROUTE_ANY_QUERY, unsupported_reply},
    {"POST", "/v1/schedules", WRITE, ROUTE_ANY_QUERY, unsupported_reply},
    {"GET", "/v1/databases", READ, ROUTE_ANY_QUERY, unsupported_reply},
    {"POST", "/v1/databases", WRITE, ROUTE_ANY_QUERY, unsupported_reply},
    {"GET", "/v1/apps", READ, ROUTE_ANY_QUERY, unsupported_reply},
    {"POST", "/v1/apps", WRITE, ROUTE_ANY_QUERY, unsupported_reply},
    {0},
};
