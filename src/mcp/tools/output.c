/* The output of a command, as text for a model (output.h). Called by the tools that run something
 * or read a job; reads the exec's logs from the page cache, a bounded part of them. */
#include "mcp/tools/output.h"

#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/text.h"
#include "core/exec/exec.h"
#include "core/account/access.h"
#include "mcp/alarm.h"

/* Lines are counted in so many bytes of a stream: more would block the loop. */
#define COUNT_MOST (8 * MIB)
#define COUNT_CHUNK (64 * KIB)
/* If more than one byte in so many is not text, the output is binary; a few bytes can always be
 * shown. */
#define BINARY_SHARE 4
#define BINARY_LEAST 16

/* Appends. Callers size their buffers for the escaped text that they request; text beyond that is
 * dropped rather than cut in the middle. */
static void output_add(struct buffer *to, const char *data, size_t size)
{
	if (buffer_append(to, data, size) < 0)
		return;
}

#define add_format(to, ...)                                                                        \
	do {                                                                                       \
		if (buffer_printf(to, __VA_ARGS__) < 0)                                            \
			break;                                                                     \
	} while (0)

void output_end_line(struct buffer *to)
{
	if (to->size > 0 && to->data[to->size - 1] != '\n')
		output_add(to, "\n", 1);
}

/* --- what is text --- */

/* The length of the character at `data`, or 0 if it is invalid. Some control characters are text,
 * since programs print them in text: blanks, backspace, bell, escape. */
static size_t character_length(const char *data, size_t size)
{
	unsigned char c = (unsigned char)data[0];
	if (c < 0x80)
		return c >= ' ' || (c >= '\a' && c <= '\r') || c == 0x1b ? c != 0x7f : 0;
	size_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;
	return length > 0 && length <= size && text_is_utf8(data, length) ? length : 0;
}

bool output_is_binary(const char *data, size_t size)
{
	size_t strange = 0;
	for (size_t at = 0; at < size;) {
		size_t length = character_length(data + at, size - at);
		strange += length == 0;
		at += MAX(length, 1u);
	}
	return strange > MAX(size / BINARY_SHARE, (size_t)BINARY_LEAST);
}

void output_visible(struct buffer *to, const char *data, size_t size, uint64_t *binary)
{
	size_t plain = 0;
	if (size == 0)
		return;
	for (size_t at = 0; at < size;) {
		size_t length = character_length(data + at, size - at);
		if (length > 0) {
			at += length;
			continue;
		}
		output_add(to, data + plain, at - plain);
		add_format(to, "\\x%02x", (unsigned char)data[at]);
		++*binary;
		plain = ++at;
	}
	output_add(to, data + plain, size - plain);
}

/* Characters that end a line or move a terminal's cursor: the control characters of ASCII and
 * Latin-1, the separators of lines and paragraphs (U+2028, U+2029). */
static bool character_is_control(const char *data, size_t length)
{
	const unsigned char *c = (const unsigned char *)data;
	return (length == 1 && c[0] < ' ') || (length == 2 && c[0] == 0xc2 && c[1] < 0xa0) ||
	       (length == 3 && c[0] == 0xe2 && c[1] == 0x80 && (c[2] == 0xa8 || c[2] == 0xa9));
}

void output_name(struct buffer *to, const char *data, size_t size)
{
	for (size_t at = 0; at < size;) {
		size_t length = character_length(data + at, size - at);
		const char *escape = data[at] == '\n'   ? "\\n"
				     : data[at] == '\t' ? "\\t"
				     : data[at] == '\r' ? "\\r"
							: NULL;
		if (escape) {
			output_add(to, escape, 2);
		} else if (length > 0 && !character_is_control(data + at, length)) {
			output_add(to, data + at, length);
		} else {
			for (size_t i = 0; i < MAX(length, 1u); i++)
				add_format(to, "\\x%02x", (unsigned char)data[at + i]);
		}
		at += MAX(length, 1u);
	}
}

uint64_t output_end(struct exec *exec, enum exec_stream stream)
{
	char last[4];
	uint64_t total = exec_total(exec, stream), gap = 0, from = total - MIN(total, 4u);
	if (exec_ended(exec) || total == 0)
		return total;
	ssize_t got = exec_read(exec, stream, from, last, sizeof(last), &gap);
	if (got != (ssize_t)(total - from) || gap > 0)
		return total;
	return from + text_utf8_prefix(last, (size_t)got);
}

uint64_t output_tail(struct exec *exec, enum exec_stream stream, uint64_t max)
{
	uint64_t end = output_end(exec, stream), from = end - MIN(end, max), gap = 0;
	DONE_BUFFER struct buffer tail = BUFFER(max + 1);
	if (from == 0 || buffer_reserve(&tail, (size_t)max) < 0)
		return from;
	ssize_t got = exec_read(exec, stream, from, tail.data, (size_t)max, &gap);
	const char *newline = got > 0 ? memchr(tail.data, '\n', (size_t)got) : NULL;
	uint64_t line = newline ? from + gap + (uint64_t)(newline + 1 - tail.data) : end;
	return line < end ? line : from;
}

/* --- counting --- */

/* Eight bytes at a time, since everything else waits while megabytes are counted. */
static uint64_t count_newlines(const char *data, size_t size)
{
	const uint64_t ones = 0x0101010101010101, low = 0x7f7f7f7f7f7f7f7f;
	uint64_t count = 0;
	size_t at = 0;
	for (; at + 8 <= size; at += 8) {
		uint64_t word;
		memcpy(&word, data + at, 8);
		word ^= '\n' * ones;
		/* The high bit of each byte that is now zero; then their sum in the highest
		 * byte. */
		uint64_t zero = ~(((word & low) + low) | word | low);
		count += (zero >> 7) * ones >> 56;
	}
	for (; at < size; at++)
		count += data[at] == '\n';
	return count;
}

bool output_count(struct exec *exec, enum exec_stream stream, uint64_t begin, uint64_t end,
		  uint64_t *ret_bytes, uint64_t *ret_lines)
{
	static char chunk[COUNT_CHUNK]; /* one loop, and no function called from here waits */
	uint64_t stop = MIN(end, begin + COUNT_MOST), lines = 0;
	char last = '\n';
	*ret_bytes = end > begin ? end - begin : 0;
	for (uint64_t at = begin; at < stop;) {
		uint64_t gap = 0;
		ssize_t got =
		    exec_read(exec, stream, at, chunk, (size_t)MIN(stop - at, COUNT_CHUNK), &gap);
		if (got <= 0)
			break;
		size_t size = (size_t)MIN((uint64_t)got, stop - MIN(stop, at + gap));
		lines += count_newlines(chunk, size);
		if (size > 0)
			last = chunk[size - 1];
		at += gap + size;
	}
	*ret_lines = lines + (last != '\n');
	return stop >= end;
}

/* --- a view --- */

static const char *stream_name(enum exec_stream stream)
{
	return stream == EXEC_STDERR ? "stderr" : "stdout";
}

/* "[... 123 bytes, 4 lines left out; read_job {...} shows them ...]" */
static void output_append_left_out(struct buffer *to, struct exec *exec, enum exec_stream stream,
				   const struct output_cut *cut, const char *read_more)
{
	uint64_t bytes, lines, from = cut->tail_offset - cut->omitted;
	bool all = output_count(exec, stream, from, cut->tail_offset, &bytes, &lines);
	output_end_line(to);
	add_format(to, "[... %llu bytes, %s%llu line%s left out", (unsigned long long)bytes,
		   all ? "" : "over ", (unsigned long long)lines, lines == 1 ? "" : "s");
	if (read_more)
		add_format(to, "; next: %s {\"job_id\":\"%s\",%s\"offset\":%llu}", read_more,
			   exec->row.id.text, stream == EXEC_STDERR ? "\"stream\":\"stderr\"," : "",
			   (unsigned long long)from);
	output_add(to, " ...]\n", 6);
}

/* kept: its bytes can be read as a resource. */
static void output_append_binary(struct buffer *to, const struct exec *exec,
				 enum exec_stream stream, uint64_t size, bool kept)
{
	add_format(to,
		   "[binary output on %s, %llu bytes, not shown: pipe it through base64 or xxd, or "
		   "redirect it to a file",
		   stream_name(stream), (unsigned long long)size);
	if (kept)
		add_format(to, "; job://%s/%s/%s is the resource", exec->sandbox->row.id.text,
			   exec->row.id.text, stream_name(stream));
	output_add(to, "]\n", 2);
}

static void output_append_strange(struct buffer *to, uint64_t binary)
{
	if (binary > 0)
		add_format(to, "[%llu byte%s no text: shown as \\xNN]\n",
			   (unsigned long long)binary, binary == 1 ? " is" : "s are");
}

/* The rest of a character that began before the range, and an incomplete one at its end, are not
 * shown: the offset says where it is. */
static void output_trim_characters(struct exec *exec, enum exec_stream stream, uint64_t begin,
				   uint64_t end, struct output_cut *cut)
{
	if (begin > 0 && cut->head.size > 0)
		buffer_consume(&cut->head, utf8_rest(cut->head.data, cut->head.size));
	struct buffer *last = cut->tail.size > 0 ? &cut->tail : &cut->head;
	if (!exec_ended(exec) || end < exec_total(exec, stream))
		last->size = text_utf8_prefix(last->data, last->size);
}

static bool output_append_stream(struct buffer *to, struct exec *exec, enum exec_stream stream,
				 uint64_t begin, uint64_t end, uint64_t max, const char *read_more)
{
	struct output_cut cut;
	struct error error;
	uint64_t head = max * OUTPUT_HEAD / OUTPUT_DEFAULT, binary = 0;
	if (end <= begin)
		return false;
	if (output_cut(exec, stream, begin, end, head, max - head, &cut, &error) < 0) {
		add_format(to, "[%s]\n", error.message);
		return true;
	}
	output_trim_characters(exec, stream, begin, end, &cut);
	if (output_is_binary(cut.head.data, cut.head.size) ||
	    output_is_binary(cut.tail.data, cut.tail.size)) {
		output_append_binary(to, exec, stream, end - begin, read_more != NULL);
		output_cut_done(&cut);
		return true;
	}
	output_visible(to, cut.head.data, cut.head.size, &binary);
	if (cut.omitted > 0)
		output_append_left_out(to, exec, stream, &cut, read_more);
	output_visible(to, cut.tail.data, cut.tail.size, &binary);
	output_end_line(to);
	output_append_strange(to, binary);
	bool left_out = cut.omitted > 0;
	output_cut_done(&cut);
	return left_out;
}

bool output_append(struct buffer *to, struct exec *exec, const struct output_view *view)
{
	uint64_t max = view->max ? view->max : OUTPUT_DEFAULT;
	uint64_t out = view->out_end - MIN(view->out_begin, view->out_end);
	uint64_t err = view->err_end - MIN(view->err_begin, view->err_end);
	/* A model looks first at the errors when something fails, and they are short otherwise:
	 * they get up to half if both are long. */
	uint64_t err_max = MIN(err, MAX(max / 2, max - MIN(max, out)));
	bool left_out = output_append_stream(to, exec, EXEC_STDOUT, view->out_begin, view->out_end,
					     max - err_max, view->read_more);
	if (err > 0)
		output_add(to, "[stderr]\n", 9);
	return output_append_stream(to, exec, EXEC_STDERR, view->err_begin, view->err_end, err_max,
				    view->read_more) ||
	       left_out;
}

/* --- a page --- */

/* Where a page of a longer stream ends: after its last line, if it has one. */
static size_t page_end(const char *data, size_t size, bool more)
{
	if (!more)
		return size;
	const char *line = size ? memrchr(data, '\n', size) : NULL;
	return line ? (size_t)(line - data) + 1 : text_utf8_prefix(data, size);
}

uint64_t output_page(struct buffer *to, struct exec *exec, enum exec_stream stream, uint64_t from,
		     uint64_t max)
{
	uint64_t total = exec_total(exec, stream), gap = 0, binary = 0;
	DONE_BUFFER struct buffer page = BUFFER(max + 1);
	if (from >= total || buffer_reserve(&page, (size_t)max) < 0)
		return MIN(from, total);
	ssize_t got = exec_read(exec, stream, from, page.data, (size_t)max, &gap);
	if (got < 0) {
		add_format(to, "[the output cannot be read: %s]\n", strerror((int)-got));
		return from;
	}
	if (gap > 0)
		add_format(to, "[%llu bytes are no longer kept]\n", (unsigned long long)gap);
	from += gap;
	size_t rest = from > 0 ? utf8_rest(page.data, (size_t)got) : 0;
	/* The last line of a running job may be incomplete; it is shown, since it may be a
	 * prompt. */
	bool more = from + (uint64_t)got < total;
	size_t size = page_end(page.data, (size_t)got, more);
	if (!more && !exec_ended(exec))
		size = text_utf8_prefix(page.data, size);
	if (size == 0)
		size = (size_t)got;
	rest = MIN(rest, size);
	if (output_is_binary(page.data + rest, size - rest))
		output_append_binary(to, exec, stream, size, true);
	else
		output_visible(to, page.data + rest, size - rest, &binary);
	output_end_line(to);
	output_append_strange(to, binary);
	return from + size;
}

/* --- live --- */

/* The newest complete lines of one stream that fit into one message: the last ones show how far the
 * command is. */
static size_t newest_lines(struct exec *exec, enum exec_stream stream, uint64_t *sent, char *to,
			   size_t room)
{
	uint64_t total = exec_total(exec, stream), gap = 0;
	uint64_t from = total - MIN(total - *sent, (uint64_t)room);
	if (from == total)
		return 0;
	ssize_t got = exec_read(exec, stream, from, to, room, &gap);
	if (got <= 0)
		return 0;
	const char *end = memrchr(to, '\n', (size_t)got);
	size_t size;
	if (end)
		size = (size_t)(end - to) + 1;
	else if ((size_t)got == room) /* a line without an end: better a part of it than nothing */
		size = text_utf8_prefix(to, (size_t)got);
	else
		return 0;
	size_t skip = 0;
	if (from + gap > *sent) {
		const char *first = memchr(to, '\n', size);
		skip =
		    first && first + 1 < to + size ? (size_t)(first - to) + 1 : utf8_rest(to, size);
	}
	*sent = from + gap + size;
	memmove(to, to + skip, size - skip);
	return size - skip;
}

/* What has come since. true: there is more that may not be sent yet. */
static bool exec_progress_send(struct exec_progress *progress, struct exec *exec)
{
	struct mcp_request *request = progress->request;
	if (!request->open || (!request->progress_token && !request->task))
		return false;
	bool news = false;
	for (int i = 0; i < 2; i++)
		news |= exec_total(exec, EXEC_STDOUT + i) > progress->sent[i];
	if (!news)
		return false;
	if (clock_monotonic() < request->progress_due)
		return true;
	char text[MCP_PROGRESS_TEXT_MAX / 2];
	DONE_BUFFER struct buffer message = BUFFER(MCP_PROGRESS_TEXT_MAX * 4);
	uint64_t binary = 0;
	for (int i = 0; i < 2; i++) {
		size_t size =
		    newest_lines(exec, EXEC_STDOUT + i, &progress->sent[i], text, sizeof(text));
		if (!output_is_binary(text, size))
			output_visible(&message, text, size, &binary);
	}
	while (message.size > 0 && message.data[message.size - 1] == '\n')
		message.size--;
	if (message.size > 0)
		mcp_progress(request, message.data, message.size);
	return false;
}

/* --- what is sent a little later --- */

static void exec_progress_look(void *data)
{
	struct exec_progress *progress = data;
	struct mcp_request *request = progress->request;
	struct exec *exec;
	struct error error;
	struct sandbox *sandbox = sandbox_by_id(request->core, &progress->sandbox);
	alarm_stop(&progress->alarm);
	if (!sandbox || exec_find(sandbox, progress->exec.text, &exec, &error) < 0)
		return;
	/* A message may reveal that the client is gone: then this request ends after it. */
	mcp_hold(request);
	if (exec_progress_send(progress, exec))
		progress->alarm =
		    alarm_after(request->core->loop, MCP_PROGRESS_MS, exec_progress_look, progress);
	mcp_release(request);
}

/* In a separate turn, so that a message's consequences do not happen within a callback of the
 * domain. */
void exec_progress_changed(struct exec_progress *progress, struct mcp_request *request,
			   struct exec *exec)
{
	progress->request = request;
	progress->sandbox = exec->sandbox->row.id;
	progress->exec = exec->row.id;
	if (progress->alarm || !request->open || (!request->progress_token && !request->task))
		return;
	int64_t wait = (request->progress_due - clock_monotonic()) / NSEC_PER_MSEC;
	if (request->task)
		wait = MCP_PROGRESS_MS;
	progress->alarm =
	    alarm_after(request->core->loop, (uint64_t)MIN(MAX(wait, 0), MCP_PROGRESS_MS),
			exec_progress_look, progress);
}

void exec_progress_stop(struct exec_progress *progress)
{
	alarm_stop(&progress->alarm);
}
