/* Sandboxes that end with a connection. A sandbox with the label `caisson.connection` lives while a
 * holder in its workspace holds that label's name: a client's open connection does
 * (mcp/transport/lines.c). The name is derived from the connection's id and from its token or user:
 * the id of another caller's connection gives another name, and the label does not reveal the id.
 * If a client sets the label to an id, the label is replaced by the name for that client. When the
 * client has ended, the sandbox is deleted at once; when the client's fate is unknown (the daemon
 * was restarted, a network failed), it has EPHEMERAL_GRACE_SECONDS to reconnect with the same id.
 * The label is in the row, so that the next daemon knows it too; removing the label keeps the
 * sandbox. */
#pragma once

#include "core/sandbox/labels.h"
#include "core/sandbox/sandbox.h"
#include "proto/mcp_lines.h"

#define EPHEMERAL_LABEL MCP_CONNECTION_LABEL
#define EPHEMERAL_GRACE_SECONDS 30

struct ephemeral_name {
	char text[32 + 1];
};
struct ephemeral_name ephemeral_name(const struct principal *principal,
				     const struct id *connection);
/* Replaces the id in such a label by its name, which is stored in `room` and must live as long as
 * the pairs. */
void ephemeral_name_labels(const struct principal *principal, struct pair *pairs, size_t count,
			   struct ephemeral_name *room);

/* Owned by the holder; in the core's list until it is released. */
struct ephemeral_hold {
	struct list link;
	struct core *core;
	char workspace[WORKSPACE_MAX + 1];
	struct ephemeral_name connection;
};

void ephemeral_hold(struct core *core, const struct principal *principal,
		    const struct id *connection, struct ephemeral_hold *hold);
/* gone: the client has ended, and its sandboxes are deleted; else they wait for the client to
 * reconnect. Safe after a release and without a hold. Does nothing when the core ends. */
void ephemeral_release(struct ephemeral_hold *hold, bool gone);

/* Makes a create ephemeral; `room` becomes the spec's labels and must live as long as the spec. */
struct ephemeral_labels {
	struct pair pairs[LABELS_MAX + 1];
};
void ephemeral_mark(struct sandbox_spec *spec, const struct id *connection,
		    struct ephemeral_labels *room);
