/* GET …/execs/{exec}/receipt: a command, its sandbox, its limits and its result, with the entries
 * of the activity that prove them, signed with this installation's key. Made from the stored
 * entries, so that it is available while they are kept, also for an ended sandbox. docs/activity.md
 * describes how to check one. Runs on the loop; reads a bounded part of the store. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/activity/activity.h"
#include "base/clock.h"
#include "base/text.h"
#include "core/exec/exec.h"
#include "core/activity/receipt.h"
#include "proto/init_messages.h"
#include "proto/tiers.h"

#define CHAIN_MAX 2000 /* entries from the start of a command to its end */

struct receipt {
	struct id exec;
	uint64_t first; /* the number of exec.started */
	uint32_t end_kind;
	json_t *entries, *files;
	json_t *started, *ended; /* details; borrowed from entries */
	const char *actor;
	int64_t started_wall, ended_wall;
};

/* --- the entries --- */

static json_t *details_json(const struct activity_row *row)
{
	struct bytes packed = {(const uint8_t *)row->details, row->details_size};
	size_t at = 0;
	const char *key, *value;
	json_t *details = json_array();
	/* A list of pairs, since the order is part of the hash, and members of an object have no
	 * order. */
	while ((key = packed_next(packed, &at)) && (value = packed_next(packed, &at)))
		json_array_append_new(details, json_pack("[s, s]", key, value));
	return details;
}

static json_t *entry_json(const struct activity_row *row)
{
	char previous[2 * ACTIVITY_HASH_SIZE + 1], hash[2 * ACTIVITY_HASH_SIZE + 1], wall[24];
	const char *kind = activity_kind_name(row->kind);
	text_hex(row->previous, ACTIVITY_HASH_SIZE, previous);
	text_hex(row->hash, ACTIVITY_HASH_SIZE, hash);
	snprintf(wall, sizeof(wall), "%" PRId64, row->wall);
	return json_pack("{s:I, s:s, s:s, s:s, s:s?, s:o, s:s, s:s}", "number",
			 (json_int_t)row->number, "time_ns", wall, "kind", kind ? kind : "",
			 "actor", row->actor, "exec_id",
			 id_is_set(&row->exec) ? row->exec.text : NULL, "details",
			 details_json(row), "previous", previous, "hash", hash);
}

static bool entry_is_file_change(uint32_t kind)
{
	return kind == ACTIVITY_FILE_WRITTEN || kind == ACTIVITY_FILE_CHANGED ||
	       kind == ACTIVITY_FILE_REMOVED;
}

static bool receipt_take_entry(void *data, const struct activity_row *row)
{
	struct receipt *receipt = data;
	json_t *entry = entry_json(row);
	json_array_append_new(receipt->entries, entry);
	if (entry_is_file_change(row->kind))
		json_array_append_new(
		    receipt->files, json_pack("{s:I, s:s, s:O}", "number", (json_int_t)row->number,
					      "kind", activity_kind_name(row->kind), "details",
					      json_object_get(entry, "details")));
	if (row->number == receipt->first) {
		receipt->started = json_object_get(entry, "details");
		receipt->started_wall = row->wall;
		receipt->actor = json_string_value(json_object_get(entry, "actor"));
	}
	if (!id_equal(&row->exec, &receipt->exec) ||
	    (row->kind != ACTIVITY_EXEC_ENDED && row->kind != ACTIVITY_EXEC_FAILED))
		return true;
	receipt->ended = json_object_get(entry, "details");
	receipt->ended_wall = row->wall;
	receipt->end_kind = row->kind;
	return false;
}

static const char *detail_text(const json_t *details, const char *key)
{
	for (size_t i = 0; i < json_array_size(details); i++) {
		json_t *pair = json_array_get(details, i);
		if (strcmp(json_string_value(json_array_get(pair, 0)), key) == 0)
			return json_string_value(json_array_get(pair, 1));
	}
	return NULL;
}

/* A number in the details; null if it is missing. */
static json_t *detail_number(const json_t *details, const char *key)
{
	const char *text = detail_text(details, key);
	uint64_t value;
	return text && text_to_u64(text, 0, INT64_MAX, &value) == 0
		   ? json_integer((json_int_t)value)
		   : json_null();
}

/* --- what it says --- */

static json_t *limit_json(const struct sandbox_row *row, enum limit_kind kind)
{
	uint64_t value = 0;
	switch (kind) {
	case LIMIT_CPU:
		value = row->limits.cpu_millis;
		break;
	case LIMIT_MEMORY:
		value = row->limits.memory;
		break;
	case LIMIT_PIDS:
		value = row->limits.pids;
		break;
	case LIMIT_DISK:
		value = row->limits.disk;
		break;
	case LIMIT_INODES:
		value = row->limits.inodes;
		break;
	case LIMIT_FILES:
		value = row->limits.files;
		break;
	case LIMIT_COUNT:
		break;
	}
	bool enforced = row->limit_reasons[kind] == LIMIT_ENFORCED;
	return json_pack(
	    "{s:I, s:b, s:s?}", "value", (json_int_t)value, "enforced", enforced, "reason",
	    enforced ? NULL : limit_reason_text((enum limit_reason)row->limit_reasons[kind]));
}

static json_t *sandbox_json(const struct sandbox_row *row)
{
	json_t *limits = json_object();
	char created[CLOCK_TEXT_SIZE];
	clock_text(row->created_wall, created);
	for (int kind = 0; kind < LIMIT_COUNT; kind++) {
		/* Thousandths, since a fraction has no canonical form. */
		const char *name =
		    kind == LIMIT_CPU ? "cpu_millis" : limit_name((enum limit_kind)kind);
		json_object_set_new(limits, name, limit_json(row, (enum limit_kind)kind));
	}
	return json_pack("{s:s, s:s?, s:s, s:s, s:s?, s:s, s:s, s:s, s:o}", "id", row->id.text,
			 "name", row->name, "workspace", row->workspace, "template", row->template,
			 "template_digest", row->rootfs_digest, "isolation",
			 tier_name((enum tier)row->tier), "network", network_name(row->network),
			 "created_at", created, "limits", limits);
}

static json_t *exec_json(const struct receipt *receipt, const struct id *exec)
{
	char started[CLOCK_TEXT_SIZE], ended[CLOCK_TEXT_SIZE];
	const char *outcome = detail_text(receipt->ended, "outcome");
	clock_text(receipt->started_wall, started);
	clock_text(receipt->ended_wall, ended);
	if (receipt->end_kind == ACTIVITY_EXEC_FAILED)
		outcome = "failed";
	return json_pack("{s:s, s:s?, s:s, s:s, s:s, s:s?, s:o, s:o, s:b, s:s?, s:o, s:o}", "id",
			 exec->text, "command", detail_text(receipt->started, "command"), "actor",
			 receipt->actor, "started_at", started, "ended_at", ended, "outcome",
			 outcome, "exit_code", detail_number(receipt->ended, "exit_code"), "signal",
			 detail_number(receipt->ended, "signal"), "oom_killed",
			 detail_text(receipt->ended, "oom_killed") != NULL, "error",
			 detail_text(receipt->ended, "error"), "duration_us",
			 detail_number(receipt->ended, "duration_us"), "cpu_us",
			 detail_number(receipt->ended, "cpu_us"));
}

/* Is the log still complete? */
static bool log_is_whole(struct exec *exec, enum exec_stream stream)
{
	char first;
	uint64_t gap = 0;
	if (!exec || exec->row.state != EXEC_ENDED)
		return false;
	uint64_t total = exec_total(exec, stream);
	return total == 0 || (total <= exec->row.head + exec->row.tail &&
			      exec_read(exec, stream, 0, &first, 1, &gap) == 1 && gap == 0);
}

static json_t *stream_json(const struct receipt *receipt, struct exec *exec, const char *name,
			   enum exec_stream stream)
{
	char bytes[32], digest[32];
	snprintf(bytes, sizeof(bytes), "%s_bytes", name);
	snprintf(digest, sizeof(digest), "%s_sha256", name);
	json_t *count = detail_number(receipt->ended, bytes);
	return json_pack("{s:o, s:s?, s:b}", "bytes", count, "sha256",
			 detail_text(receipt->ended, digest), "log_whole",
			 log_is_whole(exec, stream));
}

static json_t *receipt_json(const struct receipt *receipt, const struct sandbox_row *row,
			    const struct id *id, struct exec *exec)
{
	char now[CLOCK_TEXT_SIZE];
	clock_text(clock_wall(), now);
	json_t *first = json_array_get(receipt->entries, 0);
	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:{s:o, s:o}, s:[], s:O, s:{s:O, s:O}}",
			 "format", "caisson-receipt/2", "made_by", "caisson " CAISSON_VERSION,
			 "issued_at", now, "sandbox", sandbox_json(row), "exec",
			 exec_json(receipt, id), "output", "stdout",
			 stream_json(receipt, exec, "stdout", EXEC_STDOUT), "stderr",
			 stream_json(receipt, exec, "stderr", EXEC_STDERR), "egress",
			 "api_file_changes", receipt->files, "chain", "anchor",
			 json_object_get(first, "previous"), "entries", receipt->entries);
}

static void receipt_reply_signed(struct call *call, json_t *receipt)
{
	DONE_BUFFER struct buffer body = BUFFER(REPLY_MAX / 2);
	struct buffer answer = BUFFER(REPLY_MAX);
	uint8_t key[RECEIPT_KEY_SIZE], signature[RECEIPT_SIGNATURE_SIZE];
	char key_text[2 * RECEIPT_KEY_SIZE + 1], text[2 * RECEIPT_SIGNATURE_SIZE + 1];
	struct error error;
	if (!receipt || canonical_json(receipt, &body) < 0) {
		error_set(&error, ERROR_INTERNAL, "the receipt cannot be written");
		reply_error(call, &error);
		return;
	}
	if (receipt_public_key(call->core, key, &error) < 0 ||
	    receipt_sign(call->core, body.data, body.size, signature, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	text_hex(key, sizeof(key), key_text);
	text_hex(signature, sizeof(signature), text);
	struct json_writer writer = json_writer_on(&answer);
	if (buffer_printf(&answer, "{\"receipt\":") < 0 ||
	    buffer_append(&answer, body.data, body.size) < 0)
		writer.full = true;
	writer.comma = true;
	put_object(&writer, "signature");
	put_text(&writer, "algorithm", "ed25519");
	put_text(&writer, "key", key_text);
	put_text(&writer, "value", text);
	put_object_end(&writer);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

/* --- the requests --- */

static int receipt_not_kept(const struct id *exec, const struct sandbox_row *row,
			    struct error *error)
{
	return error_set(error, ERROR_EXEC_NOT_FOUND,
			 "sandbox `%s` has no activity of an exec `%s`, or it is no longer kept",
			 row->id.text, exec->text);
}

/* The entries from its start to its end. */
static int receipt_collect(struct core *core, const struct sandbox_row *row, const struct id *exec,
			   struct receipt *receipt, struct error *error)
{
	struct id sandbox = {0};
	int found = activity_started(core, exec, &sandbox, &receipt->first, error);
	if (found < 0)
		return -1;
	if (found == 0 || !id_equal(&sandbox, &row->id))
		return receipt_not_kept(exec, row, error);
	receipt->exec = *exec;
	struct activity_query query = {
	    .sandbox = &row->id,
	    .after = receipt->first - 1,
	    .limit = CHAIN_MAX,
	};
	if (activity_each(core, &query, receipt_take_entry, receipt, error) < 0)
		return -1;
	if (!receipt->ended && json_array_size(receipt->entries) == CHAIN_MAX)
		return error_set(error, ERROR_TOO_LARGE,
				 "since the start of exec `%s` there are more than %d entries, the "
				 "most that a receipt holds",
				 exec->text, CHAIN_MAX);
	if (!receipt->ended)
		return error_set(error, ERROR_RECEIPT_UNAVAILABLE,
				 "exec `%s` has not ended yet, or its end is being written",
				 exec->text);
	return receipt->started ? 0 : receipt_not_kept(exec, row, error);
}

void receipt_get(struct call *call)
{
	struct core *core = call->core;
	struct sandbox_row row = {0};
	struct receipt receipt = {.entries = json_array(), .files = json_array()};
	struct sandbox *sandbox;
	struct exec *exec = NULL;
	struct error error, ignored;
	struct id id;
	int result = sandbox_find_row(core, &call->principal, call->parameters[0], &row, &error);
	if (result == 0 && id_parse(call->parameters[1], &id) < 0)
		result = error_set(&error, ERROR_ID_MALFORMED, EXEC_ID_MALFORMED);
	activity_flush(core);
	if (result == 0)
		result = receipt_collect(core, &row, &id, &receipt, &error);
	if (result < 0) {
		reply_error(call, &error);
	} else {
		sandbox = sandbox_by_id(core, &row.id);
		if (sandbox && exec_find(sandbox, id.text, &exec, &ignored) < 0)
			exec = NULL;
		json_t *json = receipt_json(&receipt, &row, &id, exec);
		receipt_reply_signed(call, json);
		json_decref(json);
	}
	json_decref(receipt.entries);
	json_decref(receipt.files);
	sandbox_row_done(&row);
}

void receipt_key_get(struct call *call)
{
	uint8_t key[RECEIPT_KEY_SIZE];
	char text[2 * RECEIPT_KEY_SIZE + 1];
	struct error error;
	if (receipt_public_key(call->core, key, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	text_hex(key, sizeof(key), text);
	struct buffer buffer = BUFFER(1024);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "algorithm", "ed25519");
	put_text(&writer, "key", text);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}
