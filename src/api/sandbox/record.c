/* The JSON record of a sandbox. Called by every handler that answers with one. The environment is
 * not in it, since it may hold secrets. Pure; nothing blocks. */
#include "api/sandbox/record.h"

#include <stdio.h>

#include "api/sandbox/create_fields.h"
#include "api/exec/record.h"
#include "base/clock.h"
#include "core/sandbox/labels.h"
#include "core/sandbox/template.h"
#include "proto/folder_grant.h"
#include "proto/init_messages.h"
#include "proto/tiers.h"

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

static void put_pairs(struct json_writer *writer, const char *name, const char *data, uint32_t size)
{
	put_object(writer, name);
	struct bytes packed = {(const uint8_t *)data, size};
	size_t at = 0;
	const char *key, *value;
	while ((key = packed_next(packed, &at)) && (value = packed_next(packed, &at))) {
		if (metadata_secret(key))
			continue;
		put_key(writer, key);
		put_text(writer, NULL, value);
	}
	put_object_end(writer);
}

/* The requested template, and the one that replaces it if it is not installed. */
static void put_template(struct json_writer *writer, const struct sandbox_row *row)
{
	char warning[256];
	put_text(writer, "template", row->template_asked ? row->template_asked : row->template);
	if (!row->template_asked)
		return;
	put_text(writer, "template_resolved", row->template);
	snprintf(warning, sizeof(warning), TEMPLATE_WARNING, row->template_asked);
	put_array(writer, "warnings");
	put_text(writer, NULL, warning);
	put_array_end(writer);
}

static void put_mounts(struct json_writer *writer, const struct sandbox_row *row)
{
	put_array(writer, "mounts");
	struct sandbox_mount mount;
	for (size_t at = 0; sandbox_mount_next(row, &at, &mount);) {
		put_object(writer, NULL);
		put_text(writer, "path", mount.path);
		put_text(writer, "mode", mount_mode_name(mount.mode));
		put_text(writer, "host_path", mount.host_path);
		put_object_end(writer);
	}
	put_array_end(writer);
}

static void put_boot(struct json_writer *writer, const struct sandbox_row *row,
		     const struct sandbox *sandbox)
{
	if (row->boot_us != 0) {
		put_number(writer, "boot_ms", (double)row->boot_us / 1000.0);
		if (sandbox && sandbox->queued_ms > 0)
			put_uint(writer, "queued_ms", sandbox->queued_ms);
		put_text(writer, "boot_mode", create_origin_facts(row->create_origin)->name);
	}
	/* Only known to the daemon that booted it. */
	if (!sandbox || sandbox->phase_count == 0)
		return;
	put_array(writer, "phases");
	for (uint32_t i = 0; i < sandbox->phase_count; i++) {
		put_object(writer, NULL);
		put_text(writer, "name", sandbox->phases[i].name);
		put_number(writer, "ms", sandbox->phases[i].microseconds / 1000.0);
		put_object_end(writer);
	}
	put_array_end(writer);
}

/* Since when, and how much memory was reclaimed: only the daemon that paused it knows this. */
static void put_pause(struct json_writer *writer, const struct sandbox_row *row,
		      const struct sandbox *sandbox)
{
	if (row->state != SANDBOX_PAUSED || !sandbox)
		return;
	const struct pause_report *pause = &sandbox->pause;
	uint64_t before = pause->memory_before, after = pause->memory_after;
	put_object(writer, "pause");
	put_time(writer, "since", row->paused_wall);
	if (pause->known) {
		put_uint(writer, "memory_before_bytes", before);
		put_uint(writer, "memory_after_bytes", after);
		put_uint(writer, "reclaimed_bytes", before > after ? before - after : 0);
		put_bool(writer, "reclaim_complete", pause->complete);
		put_number(writer, "reclaim_ms", (double)pause->microseconds / 1000.0);
	} else if (pause->failure[0]) {
		put_bool(writer, "reclaim_complete", false);
		put_text(writer, "reclaim_failure", pause->failure);
	}
	put_object_end(writer);
}

static void put_seconds(struct json_writer *writer, const char *key, uint32_t seconds)
{
	if (seconds)
		put_uint(writer, key, seconds);
	else
		put_null(writer, key);
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
	put_template(writer, row);
	put_text(writer, "isolation", tier_name((enum tier)row->tier));
	put_text(writer, "network", network_name(row->network));
	put_null(writer, "guest_ip");
	put_text(writer, "region", REGION_LOCAL);
	put_bool(writer, "nested_userns", row->flags & CREATE_NESTED_USERNS);
	put_limits(writer, row);
	put_seconds(writer, "timeout_seconds", row->timeout_seconds);
	put_seconds(writer, "idle_timeout_seconds", row->idle_timeout_seconds);
	put_seconds(writer, "auto_pause_seconds", row->auto_pause_seconds);
	put_bool(writer, "persistent", row->options & OPTION_PERSISTENT);
	put_bool(writer, "wake_on_read", row->options & OPTION_WAKE_ON_READ);
	if (row->drain_wall != 0)
		put_time(writer, "draining_until", row->drain_wall);
	put_time(writer, "created_at", row->created_wall);
	put_time(writer, "started_at", row->started_wall);
	put_time(writer, "active_at", row->active_wall);
	bool ended = row->state == SANDBOX_ENDED;
	put_time(writer, "expires_at", ended ? 0 : row->deadline_wall);
	if (!ended)
		put_expiry_warning(writer, row);
	put_pairs(writer, "labels", row->labels, row->labels_size);
	put_pairs(writer, "metadata", row->metadata, row->metadata_size);
	put_mounts(writer, row);
	put_boot(writer, row, sandbox);
	put_pause(writer, row, sandbox);
	if (ended) {
		put_text(writer, "end_reason", end_reason_name((enum end_reason)row->end_reason));
		put_object(writer, "end");
		put_text(writer, "reason", end_reason_name((enum end_reason)row->end_reason));
		put_text(writer, "message", row->end_message);
		put_time(writer, "at", row->ended_wall);
		put_object_end(writer);
	}
	put_object_end(writer);
}
