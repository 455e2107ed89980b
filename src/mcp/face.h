/* A face describes what a server offers: its name and the tables of its tools, resources and
 * prompts. The usual server, the administration, the fixtures and each dialect are faces;
 * dialects/dialect.h says how to make a new dialect. A view is a face as one URL or one process
 * offers it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "core/core.h"
#include "edge/edge.h"

struct mcp_request;
struct mcp_tool;
struct resource_kind;
struct prompt;
struct buffer;
struct mcp_view;

enum toolset {
	TOOLSET_DEFAULT = 1 << 0, /* the tools that an agent needs; the default if none is named */
	TOOLSET_FILES = 1 << 1,
	TOOLSET_JOBS = 1 << 2,
	TOOLSET_METRICS = 1 << 3,
	TOOLSET_SANDBOXES = 1 << 4,
	TOOLSET_ALL = 0xffff,
};

enum face_feature {
	FACE_LOGGING = 1 << 0,
	FACE_COMPLETIONS = 1 << 1,
	FACE_TASKS = 1 << 2,
	FACE_SUBSCRIBE = 1 << 3,    /* resources can be subscribed to */
	FACE_LIST_CHANGED = 1 << 4, /* the fixtures' lists change */
	FACE_SANDBOX_EACH = 1 << 5, /* each URL is one sandbox */
	FACE_STATELESS = 1 << 6,    /* legacy requests need no session, and none is opened */
};

struct mcp_face {
	const char *name; /* of serverInfo */
	const char *title;
	uint32_t features;
	enum scope scope;                    /* the scope that every request needs at least */
	const struct mcp_tool *const *tools; /* tables, NULL at the end; each ends with a tool
						without a name. Listed in this order. */
	const struct resource_kind *const *resources; /* NULL at the end; NULL: none */
	const struct prompt *const *prompts;          /* NULL at the end; NULL: none */
	uint32_t request_max, answer_max;             /* bytes; 0: the usual */
	/* NULL, or answers `initialize` instead of the usual result. */
	void (*initialize)(struct mcp_request *request);
	/* NULL, or answers the call of an unknown tool in its clients' form; false: give the usual
	 * answer. */
	bool (*unknown_tool)(struct mcp_request *request, const char *name);
	/* Writes the instructions for the model, under 2 KB. */
	void (*instructions)(const struct mcp_view *view, struct buffer *to);
};

struct mcp_view {
	const struct mcp_face *face;
	uint32_t toolsets;         /* enum toolset */
	bool read_only;            /* only tools that change nothing */
	bool ephemeral;            /* sandboxes made through it end with its connection */
	struct id connection;      /* of an ephemeral one */
	struct id sandbox;         /* of FACE_SANDBOX_EACH */
	uint32_t block_seconds;    /* the longest time of a call, for the instructions */
	char base[SERVER_URL_MAX]; /* the prefix of links; "": only the Unix socket serves it */
};

/* The usual face, of /mcp and of `caisson mcp`. The program of the conformance suite has
 * another. */
extern const struct mcp_face *mcp_home_face; /* faces.c */
extern const struct mcp_face usual_face;
extern const struct mcp_face admin_face;       /* mcp/tools/admin.c */
extern const struct mcp_face opensandbox_face; /* dialects/opensandbox.c */
extern const struct mcp_face pandastack_face;  /* dialects/pandastack.c */
/* By the name in `--dialect` and /mcp/NAME; NULL: unknown. */
const struct mcp_face *face_by_name(const char *name);
/* The names, from 0 on; NULL at the end. */
const char *face_name(size_t at);

/* "files,jobs" to bits; INVALID names the unknown word and lists the known ones. */
struct error;
NODISCARD int toolsets_parse(const char *text, uint32_t *ret_toolsets, struct error *error);
