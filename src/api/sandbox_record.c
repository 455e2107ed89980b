/* What a sandbox's record looks like in JSON. Called by every handler that answers with one. The
 * environment is not in it: it may hold secrets. Pure; nothing blocks. */
#include "api/sandbox_record.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "proto/init_messages.h"
#include "tier/driver.h"

static void put_limit(struct json_writer *writer, const struct sandbox_row *row,
		      enum limit_kind kind)
{
	put_object(writer, limit_name(kind));
	switch (kind) {
	case LIMIT_CPU:
		put_number(writer, "value", row->limits.cpu_millis / 1000.0);
		break;
	case LIMIT_MEMORY:
		put_uint(writer, "value", row->limits.memory);
		break;
	case LIMIT_PIDS:
		put_uint(writer, "value", row->limits.pids);
		break;
	case LIMIT_DISK:
		put_uint(writer, "value", row->limits.disk);
		break;
	case LIMIT_INODES:
		put_uint(writer, "value", row->limits.inodes);
		break;
	case LIMIT_FILES:
		put_uint(writer, "value", row->limits.files);
		break;
	case LIMIT_COUNT:
		break;
	}
	bool enforced = row->limit_reasons[kind] == LIMIT_ENFORCED;
	put_bool(writer, "enforced", enforced);
	put_text(writer, "reason",
		 enforced ? NULL : limit_reason_text((enum limit_reason)row->limit_reasons[kind]));
	put_object_end(writer);
}

static void put_limits(struct json_writer *writer, const struct sandbox_row *row)
{
	put_number(writer, "cpu", row->limits.cpu_millis / 1000.0);
	put_uint(writer, "memory_mb", row->limits.memory / MIB);
	put_uint(writer, "disk_mb", row->limits.disk / MIB);
	put_object(writer, "limits");
	for (int kind = 0; kind < LIMIT_COUNT; kind++)
		put_limit(writer, row, (enum limit_kind)kind);
	put_object_end(writer);
}

static void put_metadata(struct json_writer *writer, const struct sandbox_row *row)
{
	put_object(writer, "metadata");
	struct bytes packed = {(const uint8_t *)row->metadata, row->metadata_size};
	size_t at = 0;
	const char *key, *value;
	while ((key = packed_next(packed, &at)) && (value = packed_next(packed, &at))) {
		put_key(writer, key);
		put_text(writer, NULL, value);
	}
	put_object_end(writer);
}

static void put_mounts(struct json_writer *writer, const struct sandbox_row *row)
{
	put_array(writer, "mounts");
	struct bytes packed = {(const uint8_t *)row->mounts, row->mounts_size};
	size_t at = 0;
	const char *mode, *path, *host;
	while ((mode = packed_next(packed, &at)) && (path = packed_next(packed, &at)) &&
	       (host = packed_next(packed, &at))) {
		put_object(writer, NULL);
		put_text(writer, "path", path);
		put_text(writer, "mode", mode);
		put_text(writer, "host_path", host);
		put_object_end(writer);
	}
	put_array_end(writer);
}

static void put_boot(struct json_writer *writer, const struct sandbox *sandbox)
{
	/* Known to the daemon that booted it, not after a restart. */
	if (!sandbox || sandbox->phase_count == 0)
		return;
	put_number(writer, "boot_ms", (double)sandbox->boot_us / 1000.0);
	put_text(writer, "boot_mode", sandbox->boot_mode);
	put_array(writer, "phases");
	for (uint32_t i = 0; i < sandbox->phase_count; i++) {
		put_object(writer, NULL);
		put_text(writer, "name", sandbox->phases[i].name);
		put_number(writer, "ms", sandbox->phases[i].microseconds / 1000.0);
		put_object_end(writer);
	}
	put_array_end(writer);
}

static void put_seconds(struct json_writer *writer, const char *key, uint32_t seconds)
{
	if (seconds)
		put_uint(writer, key, seconds);
	else
		put_null(writer, key);
}

void put_expiry_warning(struct json_writer *writer, const struct sandbox_row *row)
{
	int64_t left = sandbox_expires_in(row);
	if (left >= 0 && left < SANDBOX_EXPIRY_WARNING)
		put_int(writer, "expires_in_s", left);
}

void put_sandbox(struct json_writer *writer, const char *key, const struct sandbox_row *row,
		 const struct sandbox *sandbox)
{
	const char *state = sandbox_state_name((enum sandbox_state)row->state);
	put_object(writer, key);
	put_text(writer, "id", row->id.text);
	put_text(writer, "name", row->name);
	put_text(writer, "status", state);
	put_text(writer, "state", state);
	put_text(writer, "template", row->template);
	put_text(writer, "isolation", tier_name((enum tier)row->tier));
	put_text(writer, "network", "off");
	put_bool(writer, "nested_userns", row->flags & CREATE_NESTED_USERNS);
	put_limits(writer, row);
	put_seconds(writer, "timeout_seconds", row->timeout_seconds);
	put_seconds(writer, "idle_timeout_seconds", row->idle_timeout_seconds);
	put_time(writer, "created_at", row->created_wall);
	put_time(writer, "started_at", row->started_wall);
	put_time(writer, "active_at", row->active_wall);
	bool ended = row->state == SANDBOX_ENDED;
	put_time(writer, "expires_at", ended ? 0 : row->deadline_wall);
	if (!ended)
		put_expiry_warning(writer, row);
	put_metadata(writer, row);
	put_mounts(writer, row);
	put_boot(writer, sandbox);
	if (ended) {
		put_object(writer, "end");
		put_text(writer, "reason", end_reason_name((enum end_reason)row->end_reason));
		put_text(writer, "message", row->end_message);
		put_time(writer, "at", row->ended_wall);
		put_object_end(writer);
	}
	put_object_end(writer);
}
