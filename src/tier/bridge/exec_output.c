/* Output of execs in the shim. See exec_output.h.
 *
 * Credit: an exec's streams share FILE_WINDOW bytes, counted as the init counts them (the payload
 * of a frame, including the byte that names the stream). Credit for written output is returned at
 * once. For a lossless exec it is returned only as far as both logs have room that overwrites
 * nothing unread, and space on disk is reserved. So the process waits instead of losing output. */
#include "tier/bridge/exec_output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "proto/output_log.h"

/* More than an init has at once: an exec that ended without a daemon is kept until LIST. */
#define RECORDS_MAX (2 * EXEC_PER_SANDBOX_MAX)
#define CREDIT_STEP (FILE_WINDOW / 4)
#define DISK_RETRY (100 * NSEC_PER_MSEC)

struct record {
	uint64_t key; /* 0: free */
	uint32_t flags;
	int streams;
	struct output_log logs[2]; /* their descriptors are owned */
	uint64_t consumed[2];
	uint64_t dropped[2]; /* bytes lost since the log last accepted some */
	uint64_t granted;    /* credit that the guest has left */
	uint64_t owed;       /* bytes received whose credit was not returned */
	int64_t retry_at;    /* lossless and the disk is full: next try; 0: not full */
	bool progress;
	bool gone; /* none of its processes is left */
	bool forgotten;
	bool listing; /* LIST was requested and has not named it yet */
};

static struct record records[RECORDS_MAX];
static uint32_t used_up_to;

static struct record *record_find(uint64_t key)
{
	for (uint32_t i = 0; key != 0 && i < used_up_to; i++)
		if (records[i].key == key)
			return &records[i];
	return NULL;
}

static struct record *record_find_free(void)
{
	for (uint32_t i = 0; i < RECORDS_MAX; i++) {
		if (records[i].key != 0)
			continue;
		used_up_to = MAX(used_up_to, i + 1);
		return &records[i];
	}
	return NULL;
}

static void record_release(struct record *record)
{
	for (int i = 0; i < record->streams; i++)
		fd_close(&record->logs[i].fd);
	*record = (struct record){.key = 0};
	while (used_up_to > 0 && records[used_up_to - 1].key == 0)
		used_up_to--;
}

static int failure_set(struct failure *failure, enum error_kind kind, const char *message)
{
	*failure = (struct failure){.kind = kind};
	snprintf(failure->message, sizeof(failure->message), "%s", message);
	return -1;
}

/* Opens the logs of a record that owns their descriptors. */
static int record_open_logs(struct record *record, struct failure *ret_failure)
{
	for (int i = 0; i < record->streams; i++) {
		struct output_log log;
		int result = output_log_open(record->logs[i].fd, &log);
		if (result < 0)
			return failure_set(ret_failure, ERROR_INTERNAL,
					   "the output log cannot be opened");
		record->logs[i] = log;
		/* The guest may use the first window before we can check the room. */
		if ((record->flags & EXEC_LOSSLESS) && log.head + log.tail < FILE_WINDOW)
			return failure_set(
			    ret_failure, ERROR_UNSUPPORTED,
			    "a lossless exec in this isolation tier needs head_bytes + "
			    "tail_bytes of 262144 or more");
	}
	return 0;
}

int exec_output_begin(uint64_t key, uint32_t flags, const int logs[2], struct failure *ret_failure)
{
	struct record *record = record_find_free();
	int streams = flags & EXEC_TTY ? 1 : 2;
	if (!record) {
		for (int i = 0; i < streams; i++)
			close(logs[i]);
		return failure_set(ret_failure, ERROR_RESOURCE_LIMIT,
				   "too many execs whose results were not fetched yet");
	}
	*record =
	    (struct record){.key = key, .flags = flags, .streams = streams, .granted = FILE_WINDOW};
	for (int i = 0; i < streams; i++)
		record->logs[i].fd = logs[i];
	if (record_open_logs(record, ret_failure) == 0)
		return 0;
	record_release(record);
	return -1;
}

bool exec_output_is_known(uint64_t key)
{
	return record_find(key) != NULL;
}

/* When the disk is full, lost bytes are counted, and noted in the log when it accepts output
 * again. */
static void record_append(struct record *record, int stream, const void *data, size_t size)
{
	struct output_log *log = &record->logs[stream];
	uint64_t *dropped = &record->dropped[stream];
	if (*dropped > 0) {
		char note[96];
		int length =
		    snprintf(note, sizeof(note),
			     "\n[%llu bytes of output were lost: the host's disk was full]\n",
			     (unsigned long long)*dropped);
		if (output_log_append(log, note, (size_t)length) == 0)
			*dropped = 0;
	}
	if (*dropped > 0 || output_log_append(log, data, size) < 0)
		*dropped += size;
	record->progress = true;
}

int exec_output_append(const struct frame *frame)
{
	struct record *record = record_find(frame->id);
	if (!record || frame->size < 2 || frame->size > record->granted)
		return -EBADMSG;
	int stream = frame->payload[0] - 1;
	if (stream < 0 || stream >= record->streams)
		return -EBADMSG;
	record->granted -= frame->size;
	record->owed += frame->size;
	record_append(record, stream, frame->payload + 1, frame->size - 1);
	return 0;
}

bool exec_output_read_totals(uint64_t key, struct output_totals *ret_totals)
{
	const struct record *record = record_find(key);
	if (!record)
		return false;
	*ret_totals = (struct output_totals){record->logs[0].total, record->logs[1].total};
	return true;
}

static void record_release_if_done(struct record *record)
{
	if (record->gone && record->forgotten)
		record_release(record);
}

void exec_output_start_failed(uint64_t key)
{
	struct record *record = record_find(key);
	if (record)
		record_release(record);
}

void exec_output_ended(uint64_t key, uint32_t left_running)
{
	struct record *record = record_find(key);
	if (!record || left_running > 0)
		return;
	record->gone = true;
	record_release_if_done(record);
}

void exec_output_forget(uint64_t key)
{
	struct record *record = record_find(key);
	if (!record)
		return;
	record->forgotten = true;
	record_release_if_done(record);
}

void exec_output_consumed(uint64_t key, const struct output_totals *consumed)
{
	struct record *record = record_find(key);
	if (!record)
		return;
	/* A larger value would allow unread output to be overwritten. */
	record->consumed[0] = MIN(consumed->out, record->logs[0].total);
	record->consumed[1] = MIN(consumed->err, record->logs[1].total);
}

void exec_output_list_begin(void)
{
	for (uint32_t i = 0; i < used_up_to; i++)
		records[i].listing = true;
}

void exec_output_listed(uint64_t key)
{
	struct record *record = record_find(key);
	if (record)
		record->listing = false;
}

void exec_output_list_end(void)
{
	for (uint32_t i = used_up_to; i > 0; i--)
		if (records[i - 1].key != 0 && records[i - 1].listing)
			record_release(&records[i - 1]);
}

/* How much credit may be returned now. */
static uint64_t record_returnable_credit(struct record *record)
{
	uint64_t most = record->owed;
	if (!(record->flags & EXEC_LOSSLESS) || most == 0)
		return most;
	int64_t now = clock_boot();
	if (record->retry_at > now)
		return 0;
	for (int i = 0; i < record->streams; i++) {
		uint64_t room = output_log_room(&record->logs[i], record->consumed[i]);
		most = MIN(most, room > record->granted ? room - record->granted : 0);
	}
	record->retry_at = 0;
	for (int i = 0; most > 0 && i < record->streams; i++) {
		if (output_log_prepare(&record->logs[i], record->granted + most) == 0)
			continue;
		record->retry_at = now + DISK_RETRY;
		return 0;
	}
	return most;
}

bool exec_output_next_credit(uint64_t *ret_key, uint32_t *ret_credit)
{
	for (uint32_t i = 0; i < used_up_to; i++) {
		struct record *record = &records[i];
		if (record->key == 0 || record->owed == 0 ||
		    (record->owed < CREDIT_STEP && record->granted > CREDIT_STEP))
			continue;
		uint64_t credit = record_returnable_credit(record);
		if (credit == 0 || (credit < CREDIT_STEP && record->granted > CREDIT_STEP))
			continue;
		record->granted += credit;
		record->owed -= credit;
		*ret_key = record->key;
		*ret_credit = (uint32_t)credit;
		return true;
	}
	return false;
}

bool exec_output_next_progress(uint64_t *ret_key, struct output_totals *ret_totals)
{
	for (uint32_t i = 0; i < used_up_to; i++) {
		if (records[i].key == 0 || !records[i].progress)
			continue;
		records[i].progress = false;
		*ret_key = records[i].key;
		return exec_output_read_totals(*ret_key, ret_totals);
	}
	return false;
}

void exec_output_repeat_progress(void)
{
	for (uint32_t i = 0; i < used_up_to; i++)
		records[i].progress = records[i].key != 0;
}

int64_t exec_output_retry_at(void)
{
	int64_t next = INT64_MAX;
	for (uint32_t i = 0; i < used_up_to; i++)
		if (records[i].key != 0 && records[i].retry_at != 0)
			next = MIN(next, records[i].retry_at);
	return next;
}
