/* Writes and reads the payloads of init_messages.h, for both ends. A reader's input is hostile:
 * this checks what makes the struct safe to use (counts, bounds, NULs, enums). Mistakes that a
 * user can make are reported elsewhere. */
#include "proto/init_messages.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"

static struct reader reader_on_frame(const struct frame *frame)
{
	return reader_on(frame->payload, frame->size);
}

static void write_packed(struct writer *writer, struct bytes bytes)
{
	write_bytes(writer, bytes.data, bytes.size);
}

/* A path: no NUL, shorter than GUEST_PATH_MAX. */
static struct bytes read_path(struct reader *reader)
{
	struct bytes path = read_bytes(reader, GUEST_PATH_MAX - 1);
	if (path.size > 0 && memchr(path.data, '\0', path.size))
		reader->bad = true;
	return path;
}

/* "K=V\0...": each variable has a name. */
static struct bytes read_environment(struct reader *reader, uint32_t count_max, size_t size_max,
				     uint32_t *ret_count)
{
	uint32_t count = read_u32(reader);
	struct bytes packed = read_bytes(reader, size_max);
	if (count > count_max || !packed_valid(packed, count))
		reader->bad = true;
	size_t at = 0;
	const char *variable;
	while (!reader->bad && (variable = packed_next(packed, &at))) {
		const char *equals = strchr(variable, '=');
		if (!equals || equals == variable)
			reader->bad = true;
	}
	*ret_count = reader->bad ? 0 : count;
	return reader->bad ? (struct bytes){0} : packed;
}

bool packed_valid(struct bytes packed, uint32_t count)
{
	uint32_t found = 0;
	for (size_t i = 0; i < packed.size; i++)
		found += packed.data[i] == '\0';
	return found == count && (packed.size == 0 || packed.data[packed.size - 1] == '\0');
}

const char *packed_next(struct bytes packed, size_t *at)
{
	if (*at >= packed.size)
		return NULL;
	const char *text = (const char *)packed.data + *at;
	const void *end = memchr(text, '\0', packed.size - *at);
	if (!end)
		return NULL;
	*at += (size_t)((const char *)end - text) + 1;
	return text;
}

void failure_write(struct writer *writer, const struct failure *failure)
{
	write_u32(writer, failure->kind);
	write_u32(writer, failure->errnum);
	write_bytes(writer, failure->message,
		    strnlen(failure->message, sizeof(failure->message) - 1));
}

/* The message comes from a hostile peer and goes into JSON and to terminals: everything but
 * printable UTF-8 becomes '?'. */
static void text_make_printable(char *text)
{
	bool utf8 = text_is_utf8(text, strlen(text));
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c < 0x20 || c == 0x7f || (!utf8 && c >= 0x80))
			*text = '?';
	}
}

int failure_read(const struct frame *frame, struct failure *ret_failure)
{
	struct reader reader = reader_on_frame(frame);
	ret_failure->kind = read_u32(&reader);
	ret_failure->errnum = read_u32(&reader);
	read_text(&reader, ret_failure->message, sizeof(ret_failure->message));
	if (ret_failure->kind == ERROR_NONE || ret_failure->kind >= ERROR_KIND_COUNT ||
	    ret_failure->errnum > 4095)
		return -EBADMSG;
	text_make_printable(ret_failure->message);
	return reader_finish(&reader);
}

uint32_t protocol_agree(struct hello ours, struct hello theirs)
{
	uint32_t version = MIN(ours.newest, theirs.newest);
	return version < ours.oldest || version < theirs.oldest ? 0 : version;
}

void hello_write(struct writer *writer, const struct hello *hello)
{
	write_u32(writer, hello->oldest);
	write_u32(writer, hello->newest);
}

int hello_read(const struct frame *frame, struct hello *ret_hello)
{
	struct reader reader = reader_on_frame(frame);
	ret_hello->oldest = read_u32(&reader);
	ret_hello->newest = read_u32(&reader);
	if (ret_hello->oldest == 0 || ret_hello->oldest > ret_hello->newest)
		return -EBADMSG;
	return reader_finish(&reader);
}

void hello_reply_write(struct writer *writer, const struct hello_reply *reply)
{
	write_u32(writer, reply->version);
	write_u32(writer, reply->configured);
	write_u64(writer, reply->boot_ns);
}

int hello_reply_read(const struct frame *frame, struct hello_reply *ret_reply)
{
	struct reader reader = reader_on_frame(frame);
	ret_reply->version = read_u32(&reader);
	ret_reply->configured = read_u32(&reader);
	ret_reply->boot_ns = read_u64(&reader);
	return ret_reply->configured > 1 ? -EBADMSG : reader_finish(&reader);
}

void configure_write(struct writer *writer, const struct configure *configure)
{
	write_text(writer, configure->hostname);
	write_i64(writer, configure->deadline);
	write_u32(writer, configure->mount_count);
	for (uint32_t i = 0; i < configure->mount_count && i < SANDBOX_MOUNTS_MAX; i++) {
		write_u32(writer, configure->mounts[i].index);
		write_packed(writer, configure->mounts[i].path);
	}
	write_u32(writer, configure->environment_count);
	write_packed(writer, configure->environment);
}

int configure_read(const struct frame *frame, struct configure *ret_configure)
{
	struct reader reader = reader_on_frame(frame);
	read_text(&reader, ret_configure->hostname, sizeof(ret_configure->hostname));
	ret_configure->deadline = read_i64(&reader);
	ret_configure->mount_count = read_u32(&reader);
	if (ret_configure->mount_count > SANDBOX_MOUNTS_MAX || ret_configure->deadline < 0)
		return -EBADMSG;
	for (uint32_t i = 0; i < ret_configure->mount_count; i++) {
		ret_configure->mounts[i].index = read_u32(&reader);
		struct bytes path = ret_configure->mounts[i].path = read_path(&reader);
		if (ret_configure->mounts[i].index >= SANDBOX_MOUNTS_MAX || path.size == 0 ||
		    path.data[0] != '/')
			return -EBADMSG;
	}
	ret_configure->environment = read_environment(&reader, EXEC_ENV_MAX, EXEC_REQUEST_BYTES_MAX,
						      &ret_configure->environment_count);
	return reader_finish(&reader);
}

void exec_request_write(struct writer *writer, const struct exec_request *request)
{
	write_u32(writer, request->flags);
	write_u32(writer, request->timeout_ms);
	write_u16(writer, request->rows);
	write_u16(writer, request->columns);
	write_text(writer, request->user);
	write_packed(writer, request->cwd);
	write_u32(writer, request->argc);
	write_packed(writer, request->argv);
	write_u32(writer, request->environment_count);
	write_packed(writer, request->environment);
	write_u32(writer, request->limit_count);
	for (uint32_t i = 0; i < request->limit_count && i < EXEC_RUNLIMITS_MAX; i++) {
		write_u32(writer, request->limits[i].resource);
		write_u64(writer, request->limits[i].soft);
		write_u64(writer, request->limits[i].hard);
	}
}

static int read_limits(struct reader *reader, struct exec_request *request)
{
	request->limit_count = read_u32(reader);
	if (request->limit_count > EXEC_RUNLIMITS_MAX)
		return -EBADMSG;
	for (uint32_t i = 0; i < request->limit_count; i++) {
		request->limits[i].resource = read_u32(reader);
		request->limits[i].soft = read_u64(reader);
		request->limits[i].hard = read_u64(reader);
	}
	return 0;
}

int exec_request_read(const struct frame *frame, struct exec_request *ret_request)
{
	struct reader reader = reader_on_frame(frame);
	ret_request->flags = read_u32(&reader);
	ret_request->timeout_ms = read_u32(&reader);
	ret_request->rows = read_u16(&reader);
	ret_request->columns = read_u16(&reader);
	read_text(&reader, ret_request->user, sizeof(ret_request->user));
	ret_request->cwd = read_path(&reader);
	ret_request->argc = read_u32(&reader);
	ret_request->argv = read_bytes(&reader, EXEC_REQUEST_BYTES_MAX);
	if (ret_request->argc == 0 || ret_request->argc > EXEC_ARGV_MAX ||
	    !packed_valid(ret_request->argv, ret_request->argc))
		return -EBADMSG;
	ret_request->environment = read_environment(
	    &reader, EXEC_ENV_MAX + POOL_ENVIRONMENT_MAX,
	    EXEC_REQUEST_BYTES_MAX + POOL_ENVIRONMENT_BYTES_MAX, &ret_request->environment_count);
	if (read_limits(&reader, ret_request) < 0)
		return -EBADMSG;
	const uint32_t known = EXEC_TTY | EXEC_STDIN | EXEC_LOG | EXEC_LOSSLESS;
	if (ret_request->flags & ~known)
		return -EBADMSG;
	return reader_finish(&reader);
}

void signal_request_write(struct writer *writer, const struct signal_request *request)
{
	write_u32(writer, request->signal);
	write_u32(writer, request->scope);
}

int signal_request_read(const struct frame *frame, struct signal_request *ret_request)
{
	struct reader reader = reader_on_frame(frame);
	ret_request->signal = read_u32(&reader);
	ret_request->scope = read_u32(&reader);
	if (ret_request->signal > 64 || ret_request->scope > SIGNAL_TREE)
		return -EBADMSG;
	return reader_finish(&reader);
}

static void write_totals(struct writer *writer, const struct output_totals *totals)
{
	write_u64(writer, totals->out);
	write_u64(writer, totals->err);
}

static void read_totals(struct reader *reader, struct output_totals *totals)
{
	totals->out = read_u64(reader);
	totals->err = read_u64(reader);
}

void output_totals_write(struct writer *writer, const struct output_totals *totals)
{
	write_totals(writer, totals);
}

int output_totals_read(const struct frame *frame, struct output_totals *ret_totals)
{
	struct reader reader = reader_on_frame(frame);
	read_totals(&reader, ret_totals);
	return reader_finish(&reader);
}

void exec_result_write(struct writer *writer, const struct exec_result *result)
{
	write_u32(writer, result->end);
	write_u32(writer, result->code);
	write_totals(writer, &result->totals);
	write_u64(writer, result->wall_ns);
	write_u64(writer, result->cpu_ns);
	write_u64(writer, result->peak_memory);
	write_u32(writer, result->left_running);
}

static void read_result(struct reader *reader, struct exec_result *result)
{
	result->end = read_u32(reader);
	result->code = read_u32(reader);
	read_totals(reader, &result->totals);
	result->wall_ns = read_u64(reader);
	result->cpu_ns = read_u64(reader);
	result->peak_memory = read_u64(reader);
	result->left_running = read_u32(reader);
	if (result->end > EXEC_END_TOO_MANY_PROCESSES || result->code > 255)
		reader->bad = true;
}

int exec_result_read(const struct frame *frame, struct exec_result *ret_result)
{
	struct reader reader = reader_on_frame(frame);
	read_result(&reader, ret_result);
	return reader_finish(&reader);
}

void exec_status_write(struct writer *writer, const struct exec_status *status)
{
	write_u32(writer, status->phase);
	write_u32(writer, status->pid);
	exec_result_write(writer, &status->result);
}

int exec_status_read(const struct frame *frame, struct exec_status *ret_status)
{
	struct reader reader = reader_on_frame(frame);
	ret_status->phase = read_u32(&reader);
	ret_status->pid = read_u32(&reader);
	read_result(&reader, &ret_status->result);
	return ret_status->phase > EXEC_PHASE_ENDED ? -EBADMSG : reader_finish(&reader);
}

void file_request_write(struct writer *writer, const struct file_request *request)
{
	write_u8(writer, request->operation);
	write_u32(writer, request->flags);
	write_u32(writer, request->mode);
	write_u64(writer, request->offset);
	write_u64(writer, request->length);
	write_u32(writer, request->limit);
	write_text(writer, request->user);
	write_packed(writer, request->path);
	write_packed(writer, request->path2);
	write_packed(writer, request->pattern);
	write_packed(writer, request->replacement);
}

int file_request_read(const struct frame *frame, struct file_request *ret_request)
{
	struct reader reader = reader_on_frame(frame);
	ret_request->operation = read_u8(&reader);
	ret_request->flags = read_u32(&reader);
	ret_request->mode = read_u32(&reader);
	ret_request->offset = read_u64(&reader);
	ret_request->length = read_u64(&reader);
	ret_request->limit = read_u32(&reader);
	read_text(&reader, ret_request->user, sizeof(ret_request->user));
	ret_request->path = read_path(&reader);
	ret_request->path2 = read_path(&reader);
	/* The text may contain any byte, since replace also works on binary files. */
	ret_request->pattern = read_bytes(&reader, FRAME_PAYLOAD_MAX);
	ret_request->replacement = read_bytes(&reader, FRAME_PAYLOAD_MAX);
	const uint32_t known = FILE_NO_FOLLOW | FILE_RECURSIVE | FILE_PARENTS | FILE_NO_REPLACE |
			       FILE_REGEX | FILE_IGNORE_CASE | FILE_HIDDEN;
	if (ret_request->operation < FILE_STAT || ret_request->operation > FILE_UNPACK ||
	    (ret_request->flags & ~known))
		return -EBADMSG;
	return reader_finish(&reader);
}

void guest_metrics_write(struct writer *writer, const struct guest_metrics *metrics)
{
	write_u32(writer, metrics->processes);
	write_u64(writer, metrics->uptime_ns);
}

int guest_metrics_read(const struct frame *frame, struct guest_metrics *ret_metrics)
{
	struct reader reader = reader_on_frame(frame);
	ret_metrics->processes = read_u32(&reader);
	ret_metrics->uptime_ns = read_u64(&reader);
	return reader_finish(&reader);
}
