/* GET …/execs/{exec}/receipt: a command, its sandbox, its limits and its result, with the entries
 * of the activity that prove them, signed with this installation's key. Made from the stored
 * entries, so that it is available while they are kept, also for an ended sandbox. docs/activity.md
 * describes how to check one. Runs on the loop, which reads the entries a piece per turn; the
 * receipt is written and signed in a thread. */
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
#define PIECE_ROWS 32  /* of them, read in one turn */

struct receipt {
	struct call *call;
	struct sandbox_row row;
	struct id exec;
	struct activity_query query; /* its `after` moves on */
	uint64_t first;              /* the number of exec.started */
	uint32_t end_kind;
	json_t *entries, *files;
	json_t *started, *ended; /* details; borrowed from entries */
	const char *actor;
	int64_t started_wall, ended_wall;
	/* In the thread. */
	struct work_task task;
	json_t *json;
	uint8_t seed[RECEIPT_KEY_SIZE], key[RECEIPT_KEY_SIZE];
	struct buffer answer;
	struct json_writer writer;
	int result;
	struct error error;
};

static void receipt_free(void *state)
{
	struct receipt *receipt = state;
	json_decref(receipt->entries);
	json_decref(receipt->files);
	buffer_done(&receipt->answer);
	sandbox_row_done(&receipt->row);
	free(receipt);
}

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

static json_t *receipt_json(const struct receipt *receipt, struct exec *exec)
{
	char now[CLOCK_TEXT_SIZE];
	clock_text(clock_wall(), now);
	json_t *first = json_array_get(receipt->entries, 0);
	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:{s:o, s:o}, s:[], s:O, s:{s:O, s:O}}",
			 "format", "caisson-receipt/2", "made_by", "caisson " CAISSON_VERSION,
			 "issued_at", now, "sandbox", sandbox_json(&receipt->row), "exec",
			 exec_json(receipt, &receipt->exec), "output", "stdout",
			 stream_json(receipt, exec, "stdout", EXEC_STDOUT), "stderr",
			 stream_json(receipt, exec, "stderr", EXEC_STDERR), "egress",
			 "api_file_changes", receipt->files, "chain", "anchor",
			 json_object_get(first, "previous"), "entries", receipt->entries);
}

/* --- the answer --- */

static int receipt_write(struct receipt *receipt, struct error *error)
{
	static const char head[] = "{\"receipt\":";
	const size_t skip = sizeof(head) - 1;
	struct buffer *answer = &receipt->answer;
	struct json_writer *writer = &receipt->writer;
	uint8_t signature[RECEIPT_SIGNATURE_SIZE];
	char key_text[2 * RECEIPT_KEY_SIZE + 1], text[2 * RECEIPT_SIGNATURE_SIZE + 1];
	answer->maximum = REPLY_MAX / 2;
	if (!receipt->json || buffer_append(answer, head, skip) < 0 ||
	    canonical_json(receipt->json, answer) < 0)
		return error_set(error, ERROR_INTERNAL, "the receipt cannot be written");
	if (receipt_sign(receipt->seed, answer->data + skip, answer->size - skip, signature,
			 error) < 0)
		return -1;
	answer->maximum = REPLY_MAX;
	text_hex(receipt->key, sizeof(receipt->key), key_text);
	text_hex(signature, sizeof(signature), text);
	*writer = json_writer_on(answer);
	writer->comma = true;
	put_object(writer, "signature");
	put_text(writer, "algorithm", "ed25519");
	put_text(writer, "key", key_text);
	put_text(writer, "value", text);
	put_object_end(writer);
	put_object_end(writer);
	return 0;
}

/* A long one takes tens of milliseconds to write, to sign and to free. */
static void receipt_write_in_thread(struct work_task *task)
{
	struct receipt *receipt = container_of(task, struct receipt, task);
	receipt->result = receipt_write(receipt, &receipt->error);
	json_decref(receipt->json);
	json_decref(receipt->entries);
	json_decref(receipt->files);
	receipt->entries = receipt->files = NULL;
}

static void receipt_written(struct work_task *task)
{
	struct receipt *receipt = container_of(task, struct receipt, task);
	struct call *call = receipt->call;
	explicit_bzero(receipt->seed, sizeof(receipt->seed));
	if (receipt->result < 0)
		reply_error(call, &receipt->error);
	else
		reply_json(call, 200, &receipt->writer);
	call_release(call);
}

static void receipt_reply(struct call *call)
{
	struct receipt *receipt = call->state;
	struct sandbox *sandbox = sandbox_by_id(call->core, &receipt->row.id);
	struct exec *exec = NULL;
	struct error error;
	if (receipt_public_key(call->core, receipt->key, &error) < 0 ||
	    receipt_secret_key(call->core, receipt->seed, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	if (sandbox && exec_find(sandbox, receipt->exec.text, &exec, &error) < 0)
		exec = NULL;
	receipt->json = receipt_json(receipt, exec);
	receipt->answer = BUFFER(REPLY_MAX);
	receipt->task.in_thread = receipt_write_in_thread;
	receipt->task.done = receipt_written;
	call_hold(call);
	work_in_thread(&receipt->task, call->share);
}

/* --- the requests --- */

static int receipt_not_kept(const struct receipt *receipt, struct error *error)
{
	return error_set(error, ERROR_EXEC_NOT_FOUND,
			 "sandbox `%s` has no activity of an exec `%s`, or it is no longer kept",
			 receipt->row.id.text, receipt->exec.text);
}

/* Reads the next entries from its start to its end: 1 if it has all, 0 if there are more, or -1. */
static int receipt_collect(struct core *core, struct receipt *receipt, struct error *error)
{
	bool more = false;
	size_t room = CHAIN_MAX - json_array_size(receipt->entries);
	receipt->query.limit = (uint32_t)MIN(room, (size_t)PIECE_ROWS);
	receipt->query.ret_more = &more;
	if (activity_each_written(core, &receipt->query, receipt_take_entry, receipt, error) < 0)
		return -1;
	if (receipt->ended)
		return receipt->started ? 1 : receipt_not_kept(receipt, error);
	if (json_array_size(receipt->entries) == CHAIN_MAX)
		return error_set(error, ERROR_TOO_LARGE,
				 "since the start of exec `%s` there are more than %d entries, the "
				 "most that a receipt holds",
				 receipt->exec.text, CHAIN_MAX);
	if (!more)
		return error_set(error, ERROR_RECEIPT_UNAVAILABLE,
				 "exec `%s` has not ended yet, or its end is being written",
				 receipt->exec.text);
	return 0;
}

static void receipt_turn(struct call *call)
{
	struct receipt *receipt = call->state;
	struct error error;
	int result = receipt_collect(call->core, receipt, &error);
	if (result < 0)
		reply_error(call, &error);
	else if (result == 0)
		call_next_turn(call, receipt_turn);
	else
		receipt_reply(call);
}

static int receipt_find(struct call *call, struct receipt *receipt, struct error *error)
{
	struct core *core = call->core;
	struct id sandbox = {0};
	if (sandbox_find_row(core, &call->principal, call->parameters[0], &receipt->row, error) < 0)
		return -1;
	if (id_parse(call->parameters[1], &receipt->exec) < 0)
		return error_set(error, ERROR_ID_MALFORMED, EXEC_ID_MALFORMED);
	activity_flush(core);
	int found = activity_started(core, &receipt->exec, &sandbox, &receipt->first, error);
	if (found < 0)
		return -1;
	if (found == 0 || !id_equal(&sandbox, &receipt->row.id))
		return receipt_not_kept(receipt, error);
	receipt->query = (struct activity_query){
	    .sandbox = &receipt->row.id,
	    .after = receipt->first - 1,
	    .scan = PIECE_ROWS,
	    .ret_seen = &receipt->query.after,
	};
	return 0;
}

void receipt_get(struct call *call)
{
	struct receipt *receipt = calloc(1, sizeof(*receipt));
	struct error error;
	if (!receipt)
		abort();
	receipt->call = call;
	receipt->entries = json_array();
	receipt->files = json_array();
	call->state = receipt;
	call->state_free = receipt_free;
	if (receipt_find(call, receipt, &error) < 0)
		reply_error(call, &error);
	else
		receipt_turn(call);
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
