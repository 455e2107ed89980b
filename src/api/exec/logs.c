/* GET .../logs: the output of a sandbox's commands, line by line (core/exec/log_lines.h): a page of
 * JSON, plain text, or, with follow=1, server-sent events until the client disconnects or the
 * sandbox ends. Reading neither wakes a sandbox nor counts as activity. Searching is done in pieces
 * (base/work.h), and the total per request is bounded. */
#include "core/exec/log_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/exec/execs.h"
#include "base/text.h"
#include "edge/call.h"
#include "edge/sse.h"

#define LINES_DEFAULT 1000
#define LINES_MAX 10000
#define FOLLOW_TAIL_DEFAULT 100
#define PAGE_BYTES (4 * MIB) /* a page ends after the line that exceeds it */
#define PIECE_WORK (64 * 1024)
#define GATHER_MS 20
#define SEARCH_MAX (256 * MIB) /* of one request; not for a follower's new lines */

struct logs {
	struct call *call;
	struct log_reader *reader;
	struct exec_listener listener;
	struct sse *sse;
	struct work work; /* the next piece */
	uv_timer_t timer; /* when a follower reads again; the call is held for it */
	struct buffer page;
	struct json_writer writer;
	uint64_t tail, limit, count, searched;
	const char *source, *stream, *grep, *exec, *after; /* of the query */
	int64_t since, until;
	bool seeking; /* searching for the beginning of the tail */
	bool full; /* the page is full: `cursor` is its end, and the search only finds out whether
		      there is more */
	struct buffer cursor;
	bool text, follow, blocked, over;
};

static void logs_free(void *state)
{
	struct logs *logs = state;
	log_reader_free(logs->reader);
	buffer_done(&logs->page);
	buffer_done(&logs->cursor);
	free(logs);
}

static void logs_timer_closed(uv_handle_t *handle)
{
	struct logs *logs = container_of((uv_timer_t *)handle, struct logs, timer);
	call_release(logs->call);
}

static void logs_finish(struct logs *logs)
{
	if (logs->over)
		return;
	logs->over = true;
	exec_unlisten(&logs->listener);
	work_cancel(&logs->work);
	uv_close((uv_handle_t *)&logs->timer, logs_timer_closed);
}

static void logs_read_later(struct logs *logs)
{
	if (!logs->over)
		work_wait(&logs->work, logs->call->share);
}

static void logs_fail(struct logs *logs, const struct error *error)
{
	struct call *call = logs->call;
	logs_finish(logs);
	if (!logs->sse) {
		reply_error(call, error);
		return;
	}
	DONE_BUFFER struct buffer buffer = BUFFER(16 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	put_error(&writer, error, call->request_id);
	sse_event(logs->sse, "error", &buffer);
	sse_end(TAKE_PTR(logs->sse));
	call_answered(call);
}

/* --- lines --- */

static const char *source_name(enum log_source source)
{
	return source == LOG_STDOUT ? "stdout" : source == LOG_STDERR ? "stderr" : "exec";
}

static void put_line(struct json_writer *writer, const struct log_line *line, bool line_end)
{
	put_object(writer, NULL);
	if (line_end && !line->partial) {
		DONE_BUFFER struct buffer text = BUFFER(2 * LOG_LINE_MAX);
		if (buffer_append(&text, line->text, line->size) < 0 ||
		    buffer_append_text(&text, "\n") < 0)
			writer->full = true;
		put_text_size(writer, "line", buffer_text(&text), text.size);
	} else {
		put_text_size(writer, "line", line->text, line->size);
	}
	if (!text_is_utf8(line->text, line->size))
		put_base64(writer, "line_base64", line->text, line->size);
	put_text(writer, "source", source_name(line->source));
	put_text(writer, "exec_id", line->row->id.text);
	if (line->source != LOG_EXEC)
		put_uint(writer, "offset", line->offset);
	if (line->gap > 0)
		put_uint(writer, "gap", line->gap);
	if (line->partial)
		put_bool(writer, "partial", true);
	put_time(writer, "not_before", line->row->started_wall);
	put_time(writer, "not_after", line->row->ended_wall);
	put_object_end(writer);
}

static void logs_take_line(struct logs *logs, const struct log_line *line)
{
	logs->count++;
	if (logs->text) {
		if (buffer_append(&logs->page, line->text, line->size) < 0 ||
		    (!line->partial && buffer_append_text(&logs->page, "\n") < 0))
			logs->count = logs->limit;
	} else if (!logs->follow) {
		put_line(&logs->writer, line, false);
	} else {
		DONE_BUFFER struct buffer buffer = BUFFER(8 * LOG_LINE_MAX);
		struct json_writer writer = json_writer_on(&buffer);
		put_line(&writer, line, true);
		if (!writer.full)
			logs->blocked = !sse_event(logs->sse, "line", &buffer);
	}
}

/* --- the answer --- */

static void logs_take_cursor(struct logs *logs)
{
	logs->cursor = BUFFER(2 * LOG_CURSOR_MAX);
	if (log_reader_cursor(logs->reader, &logs->cursor) < 0)
		buffer_clear(&logs->cursor);
}

static void logs_reply_page(struct logs *logs, bool more)
{
	struct call *call = logs->call;
	if (!logs->full)
		logs_take_cursor(logs);
	bool fits = logs->cursor.size > 0;
	logs_finish(logs);
	if (!call->exchange)
		return;
	if (logs->text) {
		const struct http_header header = {"X-Next-Cursor", buffer_text(&logs->cursor)};
		http_respond(call->exchange, 200, "text/plain; charset=utf-8", &header, fits,
			     logs->page.data, logs->page.size);
		call_answered(call);
		return;
	}
	put_array_end(&logs->writer);
	put_text(&logs->writer, "cursor", fits ? buffer_text(&logs->cursor) : NULL);
	put_bool(&logs->writer, "more", more);
	put_object_end(&logs->writer);
	reply_json(call, 200, &logs->writer);
}

static bool logs_page_full(const struct logs *logs)
{
	return !logs->follow && (logs->count >= logs->limit || logs->page.size >= PAGE_BYTES);
}

/* Reads as much as one piece of work allows. */
static void logs_read_on(struct logs *logs)
{
	int64_t work = PIECE_WORK;
	enum log_result result = LOG_LINE;
	struct log_line line;
	struct error error;
	if (logs->seeking) {
		result = log_reader_tail(logs->reader, &logs->tail, &work, &error);
		logs->seeking = result == LOG_AGAIN;
		if (result == LOG_NONE)
			result = LOG_LINE;
	}
	while (result == LOG_LINE && !logs->blocked && !logs->full) {
		result = log_reader_next(logs->reader, &line, &work, &error);
		if (result == LOG_LINE)
			logs_take_line(logs, &line);
		logs->full = logs_page_full(logs);
		if (logs->full)
			logs_take_cursor(logs);
	}
	/* One line further, which belongs to the next page. */
	if (logs->full && result == LOG_LINE)
		result = log_reader_next(logs->reader, &line, &work, &error);
	logs->searched += (uint64_t)(PIECE_WORK - work);
	if (result == LOG_FAILED)
		logs_fail(logs, &error);
	else if (!logs->follow && (result == LOG_NONE || (logs->full && result == LOG_LINE) ||
				   logs->searched > SEARCH_MAX))
		logs_reply_page(logs, result != LOG_NONE);
	else if (result == LOG_AGAIN)
		logs_read_later(logs);
	else if (result == LOG_NONE)
		log_reader_rest(logs->reader);
}

static void logs_turn_come(struct work *work)
{
	struct logs *logs = container_of(work, struct logs, work);
	struct call *call = call_hold(logs->call);
	if (!logs->over && !logs->blocked)
		logs_read_on(logs);
	call_release(call);
}

/* --- following --- */

static void logs_gathered(uv_timer_t *timer)
{
	struct logs *logs = container_of(timer, struct logs, timer);
	if (!logs->blocked)
		logs_read_later(logs);
}

static void logs_exec_changed(struct exec_listener *listener, struct exec *exec)
{
	struct logs *logs = container_of(listener, struct logs, listener);
	(void)exec;
	/* A command that begins, prints and ends causes three notifications and one read. */
	if (!logs->over && !logs->blocked && !uv_is_active((uv_handle_t *)&logs->timer))
		uv_timer_start(&logs->timer, logs_gathered, GATHER_MS, 0);
}

static void logs_forgotten(struct exec_listener *listener)
{
	struct logs *logs = container_of(listener, struct logs, listener);
	struct call *call = logs->call;
	logs_finish(logs);
	if (logs->sse) {
		sse_end(TAKE_PTR(logs->sse));
		call_answered(call);
		return;
	}
	struct error error;
	core_forgotten_error(call->core, &call->sandbox, &error);
	reply_error(call, &error);
}

static void logs_drained(struct call *call)
{
	struct logs *logs = call->state;
	logs->blocked = false;
	if (logs->sse)
		sse_drained(logs->sse);
	logs_read_later(logs);
}

static void logs_gone(struct call *call)
{
	struct logs *logs = call->state;
	sse_drop(TAKE_PTR(logs->sse));
	logs_finish(logs);
}

/* --- what is asked for --- */

#define SOURCES "stdout,stderr,both,exec,all"

const struct field logs_query[] = {
    {"follow", FIELD_BOOL_AT(struct logs, follow)},
    {"source", FIELD_TEXT_AT(struct logs, source), FIELD_WORDS_TOLD, .max = 7, .words = SOURCES},
    {"stream", FIELD_TEXT_AT(struct logs, stream), FIELD_WORDS_TOLD, .max = 7, .words = SOURCES},
    {"since", FIELD_TIME_AT(struct logs, since), .max = 39},
    {"until", FIELD_TIME_AT(struct logs, until), .max = 39},
    {"grep", FIELD_TEXT_AT(struct logs, grep), .max = LOG_GREP_MAX},
    {"exec", FIELD_TEXT_AT(struct logs, exec), .max = ID_LENGTH + 1},
    {"tail", FIELD_UINT_AT(struct logs, tail), .max = LINES_MAX},
    {"limit", FIELD_UINT_AT(struct logs, limit), .min = 1, .max = LINES_MAX},
    {"cursor", FIELD_TEXT_AT(struct logs, after), .max = LOG_CURSOR_MAX},
    {0},
};

static int logs_parse_source(const struct logs *logs, uint32_t *ret_sources, struct error *error)
{
	static const struct {
		const char *name;
		uint32_t sources;
	} names[] = {
	    {"stdout", LOG_STDOUT},
	    {"stderr", LOG_STDERR},
	    {"both", LOG_STDOUT | LOG_STDERR},
	    {"exec", LOG_EXEC},
	    {"all", LOG_STDOUT | LOG_STDERR | LOG_EXEC},
	};
	const char *name = logs->source ? logs->source : logs->stream ? logs->stream : "both";
	if (logs->source && logs->stream)
		return error_set(error, ERROR_INVALID, "`source` and `stream` are the same");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(names[i].name, name) == 0) {
			*ret_sources = names[i].sources;
			return 0;
		}
	}
	return error_set(error, ERROR_INVALID,
			 "query parameter `source` must be stdout, stderr, both, exec or all");
}

static int logs_parse_filter(const struct logs *logs, struct log_filter *filter,
			     struct error *error)
{
	if (logs_parse_source(logs, &filter->sources, error) < 0)
		return -1;
	filter->since = logs->since;
	filter->until = logs->until;
	snprintf(filter->grep, sizeof(filter->grep), "%s", logs->grep ? logs->grep : "");
	if (logs->exec && id_parse(logs->exec, &filter->exec) < 0)
		return error_set(error, ERROR_ID_MALFORMED, EXEC_ID_MALFORMED);
	return 0;
}

static int logs_parse(struct call *call, struct logs *logs, struct sandbox *sandbox,
		      struct error *error)
{
	struct log_filter filter = {0};
	struct exec *exec;
	logs->tail = UINT64_MAX;
	int result = call_query(call, logs, error);
	bool tail_given = logs->tail != UINT64_MAX;
	if (result == 0)
		result = logs_parse_filter(logs, &filter, error);
	/* An exec that is requested by id must exist. */
	if (result == 0 && id_is_set(&filter.exec))
		result = exec_find(sandbox, filter.exec.text, &exec, error);
	if (result == 0 && logs->after && tail_given)
		result = error_set(error, ERROR_INVALID, "give `tail` or `cursor`, not both");
	logs->reader = log_reader_new(sandbox, &filter, logs->follow);
	if (result == 0 && logs->after)
		result = log_reader_seek(logs->reader, logs->after, error);
	logs->seeking = !logs->after;
	if (!logs->limit)
		logs->limit = tail_given ? MAX(logs->tail, 1u) : LINES_DEFAULT;
	if (!tail_given)
		logs->tail = logs->follow ? FOLLOW_TAIL_DEFAULT : logs->limit;
	return result;
}

void logs_get(struct call *call)
{
	struct error error;
	struct logs *logs = calloc(1, sizeof(*logs));
	const char *accept = http_header(call->exchange, "accept");
	if (!logs)
		abort();
	logs->call = call;
	call->state = logs;
	call->state_free = logs_free;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	if (logs_parse(call, logs, sandbox, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	logs->text = !logs->follow && accept && text_starts(accept, "text/plain");
	logs->page = BUFFER(REPLY_MAX);
	call_hold(call);
	uv_timer_init(call->core->loop, &logs->timer);
	logs->work.run = logs_turn_come;
	logs->listener.changed = logs_exec_changed;
	logs->listener.forgotten = logs_forgotten;
	list_init(&logs->listener.link);
	call->stream.on_drain = logs_drained;
	call->on_gone = logs_gone;
	exec_listen(sandbox, &logs->listener);
	if (logs->follow) {
		logs->sse = sse_begin(call);
	} else if (!logs->text) {
		logs->writer = json_writer_on(&logs->page);
		put_object(&logs->writer, NULL);
		put_array(&logs->writer, "lines");
	}
	work_run(&logs->work, call->share);
}
