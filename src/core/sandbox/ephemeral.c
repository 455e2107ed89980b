/* See ephemeral.h. Called by mcp/ and the timers, on the loop; blocks for the store only. */
#include "core/sandbox/ephemeral.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "core/core_private.h"
#include "core/account/token.h"
#include "proto/codec.h"

struct ephemeral_name ephemeral_name(const struct principal *principal, const struct id *connection)
{
	struct ephemeral_name name;
	uint8_t said[512], hash[SHA256_DIGEST_LENGTH];
	struct writer writer = writer_on(said, sizeof(said));
	principal_write(&writer, principal);
	write_text(&writer, connection->text);
	int64_t size = writer_finish(&writer);
	if (size < 0)
		abort(); /* each part is bounded */
	SHA256(said, (size_t)size, hash);
	for (size_t i = 0; i < (sizeof(name.text) - 1) / 2; i++)
		snprintf(name.text + 2 * i, 3, "%02x", hash[i]);
	return name;
}

void ephemeral_name_labels(const struct principal *principal, struct pair *pairs, size_t count,
			   struct ephemeral_name *room)
{
	struct id id;
	for (size_t i = 0; i < count; i++) {
		if (strcmp(pairs[i].key, EPHEMERAL_LABEL) != 0 || !pairs[i].value ||
		    id_parse(pairs[i].value, &id) < 0)
			continue;
		*room = ephemeral_name(principal, &id);
		pairs[i].value = room->text;
	}
}

static const char *sandbox_connection(const struct sandbox *sandbox)
{
	return packed_value(sandbox->row.labels, sandbox->row.labels_size, EPHEMERAL_LABEL);
}

static bool connection_held(const struct core *core, const char *workspace, const char *connection)
{
	list_each (&core->private->holds, node) {
		const struct ephemeral_hold *hold = list_entry(node, struct ephemeral_hold, link);
		if (strcmp(hold->connection.text, connection) == 0 &&
		    strcmp(hold->workspace, workspace) == 0)
			return true;
	}
	return false;
}

void ephemeral_hold(struct core *core, const struct principal *principal,
		    const struct id *connection, struct ephemeral_hold *hold)
{
	hold->core = core;
	hold->connection = ephemeral_name(principal, connection);
	memcpy(hold->workspace, principal->workspace, sizeof(hold->workspace));
	list_append(&core->private->holds, &hold->link);
}

static bool sandbox_belongs_to_hold(const struct sandbox *sandbox,
				    const struct ephemeral_hold *hold)
{
	const char *connection = sandbox_connection(sandbox);
	return connection && strcmp(connection, hold->connection.text) == 0 &&
	       strcmp(sandbox->row.workspace, hold->workspace) == 0;
}

void ephemeral_release(struct ephemeral_hold *hold, bool gone)
{
	struct core *core = hold->core;
	if (!core || !core->private)
		return;
	hold->core = NULL;
	list_remove(&hold->link);
	struct core_private *private = core->private;
	if (private->stopping || private->let_go ||
	    connection_held(core, hold->workspace, hold->connection.text))
		return;
	int64_t now = clock_boot();
	list_each (&core->sandboxes, node) {
		struct sandbox *sandbox = list_entry(node, struct sandbox, link);
		if (!sandbox_belongs_to_hold(sandbox, hold))
			continue;
		sandbox->life->orphan_since = now;
		if (gone)
			sandbox_delete_unasked(sandbox, END_REASON_USER,
					       "the client that it was made for has ended");
	}
	timers_wake_at(core, now + EPHEMERAL_GRACE_SECONDS * NSEC_PER_SEC);
}

int64_t ephemeral_check(struct sandbox *sandbox, int64_t now)
{
	struct sandbox_life *life = sandbox->life;
	const char *connection = sandbox_connection(sandbox);
	if (!connection || connection_held(sandbox->core, sandbox->row.workspace, connection)) {
		life->orphan_since = 0;
		return INT64_MAX;
	}
	if (life->orphan_since == 0)
		life->orphan_since = now;
	int64_t until = life->orphan_since + EPHEMERAL_GRACE_SECONDS * NSEC_PER_SEC;
	if (until > now)
		return until;
	sandbox_delete_unasked(sandbox, END_REASON_USER,
			       "the client that it was made for did not come back");
	return INT64_MAX;
}

void ephemeral_begin(struct sandbox *sandbox)
{
	/* Existing sandboxes are checked when the timers start. */
	if (sandbox->core->private->started && sandbox_connection(sandbox))
		timers_wake_at(sandbox->core, ephemeral_check(sandbox, clock_boot()));
}

void ephemeral_mark(struct sandbox_spec *spec, const struct id *connection,
		    struct ephemeral_labels *room)
{
	size_t count = 0;
	for (size_t i = 0; i < MIN(spec->label_count, (size_t)LABELS_MAX); i++)
		if (strcmp(spec->labels[i].key, EPHEMERAL_LABEL) != 0)
			room->pairs[count++] = spec->labels[i];
	room->pairs[count++] = (struct pair){EPHEMERAL_LABEL, connection->text};
	spec->labels = room->pairs;
	spec->label_count = count;
}
