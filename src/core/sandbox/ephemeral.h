/* Sandboxes that end with a connection. One that carries the label `caisson.connection` with a name
 * lives as long as somebody of its workspace holds that name: a client's open connection does
 * (mcp/transport/lines.c). The name is made of the connection's id and of who says it: the id of
 * another's connection names nothing, and nobody who sees the label learns the id. A label that is
 * set to an id becomes the name for who sets it. When the client is gone it is deleted at once;
 * when nobody knows what became of the client (the daemon was restarted, a network broke) it has
 * EPHEMERAL_GRACE_SECONDS to come back with the same id. The label is in the row, so that the next
 * daemon knows it too; whoever takes it away keeps the sandbox. */
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
/* Replaces the id in such a label by its name, which is kept in `room` as long as the pairs live.
 */
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
/* gone: the client has ended, and its sandboxes are deleted; else they wait for it to come back.
 * Safe after a release and without a hold. Does nothing when the core ends. */
void ephemeral_release(struct ephemeral_hold *hold, bool gone);

/* Makes a create ephemeral; `room` becomes the spec's labels and must live as long as the spec. */
struct ephemeral_labels {
	struct pair pairs[LABELS_MAX + 1];
};
void ephemeral_mark(struct sandbox_spec *spec, const struct id *connection,
		    struct ephemeral_labels *room);
