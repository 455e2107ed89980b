/* JSON answers about code: a context, a cell, its output and its results. Reads logs from the page
 * cache, bounded by the answer's maxima. Called by code.c and stream.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/code/code.h"
#include "api/exec/record.h"
#include "base/clock.h"
#include "base/text.h"

void put_context(struct json_writer *writer, const char *key, const struct code_context *context)
{
	const struct context_row *row = &context->row;
	bool alive = code_context_alive(context);
	put_object(writer, key);
	put_text(writer, "id", row->id.text);
	put_text(writer, "context_id", row->id.text);
	put_text(writer, "sandbox_id", row->sandbox.text);
	put_text(writer, "language", code_language_name(row->language));
	put_text(writer, "version", context->version[0] ? context->version : NULL);
	put_text(writer, "state", !alive ? "ended" : context->running_cell ? "busy" : "idle");
	put_text(writer, "exec_id", row->exec.text);
	put_text(writer, "cwd", row->cwd ? row->cwd : "/workspace");
	put_time(writer, "created_at", row->created_wall);
	put_uint(writer, "cells", row->cells);
	put_uint(writer, "waiting", context->queued);
	put_time(writer, "ended_at", row->ended_wall);
	put_text(writer, "ended_reason", row->reason);
	put_object_end(writer);
}

/* --- output --- */

/* Returns whether it had to be base64. */
static bool put_stream(struct json_writer *writer, const struct code_context *context,
		       enum exec_stream stream, uint64_t begin, uint64_t end, uint64_t maximum,
		       bool text_only)
{
	const char *name = stream == EXEC_STDOUT ? "stdout" : "stderr";
	char key[32];
	struct output_shown shown =
	    put_output(writer, code_context_exec(context), stream, begin, end, maximum, text_only);
	snprintf(key, sizeof(key), "%s_offset", name);
	put_uint(writer, key, begin);
	snprintf(key, sizeof(key), "%s_truncated", name);
	put_bool(writer, key, shown.omitted > 0);
	return shown.base64;
}

/* The current end of a running cell's output. */
static uint64_t cell_output_end(const struct code_context *context, const struct code_cell *cell,
				enum exec_stream stream)
{
	struct exec *exec = code_context_exec(context);
	if (cell->state == CELL_ENDED || cell->state == CELL_LOST || !exec)
		return stream == EXEC_STDOUT ? cell->out_end : cell->err_end;
	return exec_total(exec, stream);
}

void put_cell_output(struct json_writer *writer, const struct code_context *context,
		     const struct code_cell *cell, uint64_t maximum, bool text_only)
{
	bool out = put_stream(writer, context, EXEC_STDOUT, cell->out_begin,
			      cell_output_end(context, cell, EXEC_STDOUT), maximum, text_only);
	bool err = put_stream(writer, context, EXEC_STDERR, cell->err_begin,
			      cell_output_end(context, cell, EXEC_STDERR), maximum, text_only);
	if (out || err)
		put_text(writer, "encoding", "base64");
}

/* --- results --- */

/* Text types are sent unchanged, the rest as base64. */
static bool mime_type_is_text(const char *type)
{
	return text_starts(type, "text/") || strstr(type, "json") || strstr(type, "xml") ||
	       strstr(type, "javascript");
}

uint32_t cell_result_count(const struct code_cell *cell)
{
	uint32_t count = 0;
	for (size_t i = 0; i < cell->part_count; i++)
		if (cell->parts[i].kind == CODE_RECORD_DATA)
			count = MAX(count, cell->parts[i].result + 1);
	return count;
}

void put_cell_result(struct json_writer *writer, const struct code_context *context,
		     const struct code_cell *cell, uint32_t result)
{
	put_object(writer, NULL);
	for (size_t i = 0; i < cell->part_count; i++) {
		const struct code_part *part = &cell->parts[i];
		if (part->kind != CODE_RECORD_DATA || part->result != result)
			continue;
		char *data = code_part_read(context, part);
		put_key(writer, part->key);
		if (!data)
			put_null(writer, NULL);
		else if (mime_type_is_text(part->key))
			put_text_size(writer, NULL, data, part->size);
		else
			put_base64(writer, NULL, data, part->size);
		free(data);
	}
	put_object_end(writer);
}

void put_cell_results(struct json_writer *writer, const struct code_context *context,
		      const struct code_cell *cell)
{
	put_array(writer, "results");
	for (uint32_t i = 0; i < cell_result_count(cell); i++)
		put_cell_result(writer, context, cell, i);
	put_array_end(writer);
}

/* The forms that were too large or too many. */
static void put_omitted(struct json_writer *writer, const struct code_context *context,
			const struct code_cell *cell)
{
	put_array(writer, "results_omitted");
	for (size_t i = 0; i < cell->part_count; i++) {
		const struct code_part *part = &cell->parts[i];
		if (part->kind != CODE_RECORD_LEFT)
			continue;
		FREE_TEXT char *digits = code_part_read(context, part);
		uint64_t number = 0;
		bool known = digits && text_to_u64(digits, 0, INT64_MAX, &number) == 0;
		put_object(writer, NULL);
		if (strcmp(part->key, "results") == 0) {
			put_uint(writer, "count", known ? number : 0);
		} else {
			put_uint(writer, "result", part->result);
			put_text(writer, "type", part->key);
			put_uint(writer, "bytes", known ? number : 0);
		}
		put_object_end(writer);
	}
	put_array_end(writer);
}

static void put_error_part(struct json_writer *writer, const struct code_context *context,
			   const struct code_cell *cell, const char *key)
{
	for (size_t i = 0; i < cell->part_count; i++) {
		const struct code_part *part = &cell->parts[i];
		if (part->kind != CODE_RECORD_ERROR || strcmp(part->key, key) != 0)
			continue;
		FREE_TEXT char *data = code_part_read(context, part);
		put_text_size(writer, key, data ? data : "", data ? part->size : 0);
		return;
	}
	put_text(writer, key, "");
}

void put_cell_error(struct json_writer *writer, const char *key, const struct code_context *context,
		    const struct code_cell *cell)
{
	if (!cell->has_error && !cell->context_ended) {
		put_null(writer, key);
		return;
	}
	put_object(writer, key);
	if (cell->has_error) {
		put_error_part(writer, context, cell, "name");
		put_error_part(writer, context, cell, "value");
		put_error_part(writer, context, cell, "traceback");
	} else {
		put_text(writer, "name", "ContextEnded");
		put_text(writer, "value", context->row.reason);
		put_text(writer, "traceback", "");
	}
	put_object_end(writer);
}

/* One part of the error, unless it is missing or empty. */
static char *cell_error_part(const struct code_context *context, const struct code_cell *cell,
			     const char *key)
{
	for (size_t i = 0; i < cell->part_count; i++) {
		const struct code_part *part = &cell->parts[i];
		if (part->kind == CODE_RECORD_ERROR && strcmp(part->key, key) == 0 &&
		    part->size > 0)
			return code_part_read(context, part);
	}
	return NULL;
}

void put_cell_error_text(struct json_writer *writer, const char *key,
			 const struct code_context *context, const struct code_cell *cell)
{
	FREE_TEXT char *traceback = cell_error_part(context, cell, "traceback");
	FREE_TEXT char *value = cell_error_part(context, cell, "value");
	FREE_TEXT char *name = cell_error_part(context, cell, "name");
	if (!cell->has_error)
		put_text(writer, key, cell->context_ended ? context->row.reason : NULL);
	else
		put_text(writer, key,
			 traceback ? traceback
			 : value   ? value
			 : name    ? name
				   : "error");
}

static const char *cell_state_name(enum code_cell_state state)
{
	return state == CELL_ENDED ? "ended" : state == CELL_LOST ? "lost" : "running";
}

void put_cell(struct json_writer *writer, const struct code_context *context,
	      const struct code_cell *cell, bool with_results)
{
	bool over = cell->state == CELL_ENDED;
	put_text(writer, "sandbox_id", context->row.sandbox.text);
	put_text(writer, "context_id", context->once ? NULL : context->row.id.text);
	put_text(writer, "language", code_language_name(context->row.language));
	put_uint(writer, "cell", cell->number);
	put_text(writer, "state", cell_state_name(cell->state));
	put_text(writer, "exec_id", context->row.exec.text);
	put_time(writer, "started_at", cell->sent_wall);
	if (over)
		put_int(writer, "exit_code", cell->exit_code);
	else
		put_null(writer, "exit_code");
	put_bool(writer, "timed_out", cell->timed_out);
	put_bool(writer, "interrupted", cell->interrupted);
	put_bool(writer, "context_ended", cell->context_ended);
	put_number(writer, "duration_ms", (double)cell->duration_ns / NSEC_PER_MSEC);
	put_omitted(writer, context, cell);
	if (!with_results)
		return;
	put_cell_results(writer, context, cell);
	put_cell_error(writer, "error", context, cell);
}
