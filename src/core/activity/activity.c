/* The activity: entries are numbered and chained when they are recorded, wait in memory, and are
 * written in that order. Called by all of core/; blocks for the store only.
 *
 * The chain of a sandbox cannot have a gap: its head (number and hash of the newest entry) is in
 * memory and moves with each entry, rows are written oldest first, and an entry without room to
 * wait is refused before it gets a number. When the daemon dies, the next one takes the head from
 * the newest row. */
#include "core/activity/activity.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "core/core_private.h"

#define PENDING_MAX 4096 /* entries that may wait for the store */
#define LAZY_MS 50       /* entries that usually go with another write */
#define RETRY_MS 1000

struct pending_entry {
	struct list link;
	struct activity_row row;
};

/* Of a core. */
struct activity_log {
	struct core *core;
	uv_timer_t timer;
	bool soon; /* a flush in the next turn is on its way */
	struct list pending;
	uint32_t count;
	struct list written; /* struct pending_entry: not yet told to the listeners */
	bool telling;
	struct list listeners; /* struct activity_listener */
	bool failing;          /* the last write failed */
	bool any_dropped;
	bool too_many; /* a sandbox has more entries than the maximum */
	uint64_t prune_cursor;
};

static void pending_entry_free(struct pending_entry *pending)
{
	list_remove(&pending->link);
	activity_row_done(&pending->row);
	free(pending);
}

/* --- who --- */

void activity_actor(const struct principal *principal, char actor[ACTIVITY_ACTOR_MAX])
{
	if (!principal)
		snprintf(actor, ACTIVITY_ACTOR_MAX, "system");
	else if (id_is_set(&principal->token))
		snprintf(actor, ACTIVITY_ACTOR_MAX, "token:%s", principal->token.text);
	else
		snprintf(actor, ACTIVITY_ACTOR_MAX, "local:%u", (unsigned)principal->uid);
}

/* --- listeners --- */

void activity_listen(struct core *core, struct activity_listener *listener)
{
	list_append(&core->private->activity->listeners, &listener->link);
}

void activity_unlisten(struct activity_listener *listener)
{
	list_remove(&listener->link);
}

/* A callback may remove any listener: each is moved to the end of the list before its call. */
static void listeners_tell_row(struct activity_log *log, const struct activity_row *row)
{
	struct list due;
	list_take_all(&log->listeners, &due);
	while (!list_empty(&due)) {
		struct activity_listener *listener =
		    list_entry(due.next, struct activity_listener, link);
		list_remove(&listener->link);
		list_append(&log->listeners, &listener->link);
		listener->recorded(listener, row);
	}
}

/* In a separate turn, so that a listener may do anything. */
static void listeners_tell(void *data)
{
	struct core *core = data;
	struct activity_log *log = core->private ? core->private->activity : NULL;
	if (!log)
		return;
	log->telling = false;
	while (!list_empty(&log->written)) {
		struct pending_entry *pending =
		    list_entry(log->written.next, struct pending_entry, link);
		list_remove(&pending->link);
		listeners_tell_row(log, &pending->row);
		pending_entry_free(pending);
	}
}

static void listeners_tell_later(struct activity_log *log)
{
	if (log->telling || list_empty(&log->written))
		return;
	log->telling = true;
	core_later(log->core, listeners_tell, log->core);
}

/* --- writing --- */

static void row_hash(struct activity_row *row)
{
	struct activity_entry entry = {
	    .sandbox = row->sandbox.text,
	    .number = row->number,
	    .wall = row->wall,
	    .kind = activity_kind_name(row->kind),
	    .actor = row->actor,
	    .exec = row->exec.text,
	    .details = row->details,
	    .details_size = row->details_size,
	};
	memcpy(entry.previous, row->previous, sizeof(entry.previous));
	activity_hash(&entry, row->hash);
}

static int head_load(struct core *core, const struct id *sandbox, struct activity_head *head)
{
	struct error error;
	if (head->loaded)
		return 0;
	int found = store_activity_ends(core->store, sandbox, &head->first, &head->number,
					head->hash, &error);
	if (found < 0) {
		log_error("sandbox %s: %s", sandbox->text, error.message);
		return -1;
	}
	if (found == 0)
		head->first = 1;
	head->loaded = true;
	return 0;
}

/* Another process has written to the chain of this sandbox (a daemon that was being replaced):
 * chains the waiting entries to the newest row. */
static void chain_rebase(struct activity_log *log, const struct id *id)
{
	struct activity_head head = {0};
	struct sandbox *sandbox = sandbox_by_id(log->core, id);
	if (head_load(log->core, id, &head) < 0)
		return;
	log_warning("sandbox %s: its activity goes on after entry %" PRIu64, id->text, head.number);
	list_each (&log->pending, node) {
		struct activity_row *row = &list_entry(node, struct pending_entry, link)->row;
		if (!id_equal(&row->sandbox, id))
			continue;
		row->number = ++head.number;
		memcpy(row->previous, head.hash, sizeof(head.hash));
		row_hash(row);
		memcpy(head.hash, row->hash, sizeof(head.hash));
	}
	if (sandbox)
		sandbox->life->activity = head;
}

/* Inserts every waiting entry, inside a transaction. 0, -1, or 1: the head of the chain of *ret_id
 * was wrong. */
static int pending_entry_insert(struct activity_log *log, struct id *ret_id, struct error *error)
{
	list_each (&log->pending, node) {
		struct activity_row *row = &list_entry(node, struct pending_entry, link)->row;
		int result = store_activity_insert(log->core->store, row, &row->sequence, error);
		if (result != 0) {
			*ret_id = row->sandbox;
			return result;
		}
	}
	return 0;
}

static void activity_flush_schedule(struct activity_log *log, uint32_t delay_ms);

static void pending_entries_written(struct activity_log *log)
{
	while (!list_empty(&log->pending)) {
		struct list *node = log->pending.next;
		list_remove(node);
		list_append(&log->written, node);
	}
	log->count = 0;
	if (log->failing)
		log_info("the activity is written down again");
	log->failing = false;
	if (list_empty(&log->listeners))
		while (!list_empty(&log->written))
			pending_entry_free(
			    list_entry(log->written.next, struct pending_entry, link));
	listeners_tell_later(log);
}

static void pending_entries_write_failed(struct activity_log *log, const struct error *error)
{
	if (!log->failing)
		log_error("the activity cannot be written, %u entries wait: %s", log->count,
			  error->message);
	log->failing = true;
	activity_flush_schedule(log, RETRY_MS);
}

int activity_save(struct core *core, int (*write)(void *data, struct error *error), void *data,
		  struct error *error)
{
	struct activity_log *log = core->private->activity;
	struct error own;
	struct id id;
	int written = 0, inserted = 0;
	if (!log || list_empty(&log->pending))
		return write ? write(data, error) : 0;
	if (store_transaction_begin(core->store, &own) < 0) {
		pending_entries_write_failed(log, &own);
		return write ? write(data, error) : 0;
	}
	if (write)
		written = write(data, error);
	if (written >= 0)
		inserted = pending_entry_insert(log, &id, &own);
	bool good = written >= 0 && inserted == 0;
	/* If the commit fails, both are undone. */
	if (store_transaction_end(core->store, good ? 0 : -1, good ? &own : &(struct error){0}) ==
	    0) {
		pending_entries_written(log);
		return written;
	}
	if (written < 0)
		return written;
	if (inserted > 0)
		chain_rebase(log, &id);
	pending_entries_write_failed(log, &own);
	return write ? write(data, error) : -1;
}

/* Records the number of dropped entries of a sandbox when there is room again. */
static void dropped_entries_record(struct core *core, struct activity_log *log)
{
	log->any_dropped = false;
	list_each (&core->sandboxes, node) {
		struct sandbox *sandbox = list_entry(node, struct sandbox, link);
		char text[24];
		if (sandbox->life->activity.dropped == 0)
			continue;
		snprintf(text, sizeof(text), "%" PRIu64, sandbox->life->activity.dropped);
		sandbox->life->activity.dropped = 0;
		activity_record_by(sandbox, ACTIVITY_ENTRIES_DROPPED, "system", NULL,
				   &(struct detail){"count", text}, 1);
	}
}

void activity_flush(struct core *core)
{
	struct activity_log *log = core->private->activity;
	struct error ignored;
	if (!log || !core->store)
		return;
	execs_write_ends(core);
	(void)!activity_save(core, NULL, NULL, &ignored);
	if (log->any_dropped && !log->failing)
		dropped_entries_record(core, log);
}

int activity_each(struct core *core, const struct activity_query *query,
		  bool (*each)(void *data, const struct activity_row *row), void *data,
		  struct error *error)
{
	activity_flush(core);
	return activity_each_written(core, query, each, data, error);
}

int activity_each_written(struct core *core, const struct activity_query *query,
			  bool (*each)(void *data, const struct activity_row *row), void *data,
			  struct error *error)
{
	return store_activity_each(core->store, query, each, data, error);
}

int activity_started(struct core *core, const struct id *exec, struct id *ret_sandbox,
		     uint64_t *ret_number, struct error *error)
{
	return store_activity_started(core->store, exec, ret_sandbox, ret_number, error);
}

int activity_last(struct core *core, uint64_t *ret_sequence, struct error *error)
{
	return store_activity_last(core->store, ret_sequence, error);
}

int activity_pruned(struct core *core, const char *workspace, uint64_t *ret_sequence,
		    struct error *error)
{
	return store_activity_pruned(core->store, workspace, ret_sequence, error);
}

/* --- cursors --- */

void activity_cursor_print(uint64_t place, char cursor[ACTIVITY_CURSOR_MAX])
{
	snprintf(cursor, ACTIVITY_CURSOR_MAX, "%" PRIu64, place);
}

int activity_cursor_parse(const char *name, const char *cursor, uint64_t first, uint64_t *ret_place,
			  struct error *error)
{
	if (text_to_u64(cursor, first, INT64_MAX, ret_place) == 0)
		return 0;
	return error_set(error, ERROR_INVALID, "%s must be a number from %" PRIu64 " to %" PRId64,
			 name, first, INT64_MAX);
}

int activity_seek(struct core *core, const char *workspace, const char *name, const char *cursor,
		  uint64_t *ret_place, struct error *error)
{
	uint64_t after = 0, pruned, last;
	if (cursor && *cursor && activity_cursor_parse(name, cursor, 0, &after, error) < 0)
		return -1;
	if (activity_last(core, &last, error) < 0 ||
	    activity_pruned(core, workspace, &pruned, error) < 0)
		return -1;
	/* 0 means the oldest entry. */
	if (after != 0 && (after < pruned || after > last))
		return error_set(error, ERROR_CURSOR_GONE,
				 after > last ? "there was no event %s yet"
					      : "what came after event %s is no longer kept",
				 cursor);
	*ret_place = after != 0 ? after : cursor && !*cursor ? last : pruned;
	return 0;
}

static void activity_flush_due(void *data)
{
	struct core *core = data;
	if (!core->private || !core->private->activity)
		return;
	core->private->activity->soon = false;
	if (!core->private->let_go)
		activity_flush(core);
}

static void activity_flush_timer_due(uv_timer_t *timer)
{
	struct activity_log *log = container_of(timer, struct activity_log, timer);
	if (!log->core->private->let_go)
		activity_flush(log->core);
}

static void activity_flush_schedule(struct activity_log *log, uint32_t delay_ms)
{
	if (log->core->private->stopping)
		return;
	if (delay_ms > 0) {
		if (!uv_is_active((uv_handle_t *)&log->timer))
			uv_timer_start(&log->timer, activity_flush_timer_due, delay_ms, 0);
	} else if (!log->soon && !log->failing) {
		log->soon = true;
		core_later(log->core, activity_flush_due, log->core);
	}
}

/* --- recording --- */

/* A value as it is stored: redacted, UTF-8, cut to the maximum. */
static void details_append_value(const struct core *core, struct buffer *packed, const char *value)
{
	static const char more[] = "…";
	DONE_BUFFER struct buffer text = BUFFER(ACTIVITY_VALUE_MAX + 64);
	activity_redact(core->config.activity_redact, value, &text);
	size_t size = text.size;
	bool cut = size > ACTIVITY_VALUE_MAX;
	if (cut)
		size = text_utf8_prefix(text.data, ACTIVITY_VALUE_MAX - sizeof(more) + 1);
	if (size > 0 && !text_is_utf8(text.data, size))
		for (size_t i = 0; i < size; i++)
			if ((unsigned char)text.data[i] >= 0x80)
				text.data[i] = '?';
	if (buffer_append(packed, text.data, size) < 0 ||
	    (cut && buffer_append_text(packed, more) < 0) || buffer_append(packed, "", 1) < 0)
		abort(); /* its maximum is sufficient */
}

static void details_pack(const struct core *core, const struct detail *details, size_t count,
			 struct activity_row *row)
{
	DONE_BUFFER struct buffer packed = BUFFER(ACTIVITY_DETAILS_MAX * (ACTIVITY_VALUE_MAX + 64));
	for (size_t i = 0; i < count && i < ACTIVITY_DETAILS_MAX; i++) {
		if (!details[i].value)
			continue;
		if (buffer_append(&packed, details[i].key, strlen(details[i].key) + 1) < 0)
			abort();
		details_append_value(core, &packed, details[i].value);
	}
	row->details_size = (uint32_t)packed.size;
	row->details = TAKE_PTR(packed.data);
}

static void activity_entry_drop(struct sandbox *sandbox, struct activity_log *log)
{
	if (sandbox->life->activity.dropped++ == 0)
		log_error("sandbox %s: entries of its activity are dropped", sandbox->row.id.text);
	log->any_dropped = true;
}

void activity_record_by(struct sandbox *sandbox, enum activity_kind kind, const char *actor,
			const struct id *exec, const struct detail *details, size_t count)
{
	struct core *core = sandbox->core;
	struct activity_log *log = core->private->activity;
	struct activity_head *head = &sandbox->life->activity;
	if (!log || core->private->let_go || core->private->stopping)
		return;
	sandbox_write_ends(sandbox);
	if (log->count >= PENDING_MAX || head_load(core, &sandbox->row.id, head) < 0) {
		activity_entry_drop(sandbox, log);
		return;
	}
	struct pending_entry *pending = calloc(1, sizeof(*pending));
	if (!pending)
		abort();
	struct activity_row *row = &pending->row;
	*row = (struct activity_row){
	    .workspace = text_duplicate(sandbox->row.workspace),
	    .sandbox = sandbox->row.id,
	    .number = head->number + 1,
	    .wall = clock_wall(),
	    .kind = kind,
	    .actor = text_duplicate(actor),
	};
	if (exec)
		row->exec = *exec;
	details_pack(core, details, count, row);
	memcpy(row->previous, head->hash, sizeof(head->hash));
	row_hash(row);
	head->number = row->number;
	memcpy(head->hash, row->hash, sizeof(head->hash));
	list_append(&log->pending, &pending->link);
	log->count++;
	bool lazy = kind == ACTIVITY_EXEC_STARTED || kind == ACTIVITY_SANDBOX_CREATED;
	activity_flush_schedule(log, lazy ? LAZY_MS : 0);
	uint32_t most = core->config.activity_entries;
	if (most > 0 && head->number - head->first >= (uint64_t)most + most / 8 && !log->too_many) {
		log->too_many = true;
		core->private->prune_at = clock_boot();
		timers_wake_at(core, core->private->prune_at);
	}
}

void activity_record(struct sandbox *sandbox, enum activity_kind kind,
		     const struct principal *principal, const struct id *exec,
		     const struct detail *details, size_t count)
{
	char actor[ACTIVITY_ACTOR_MAX];
	activity_actor(principal, actor);
	activity_record_by(sandbox, kind, actor, exec, details, count);
}

void activity_take_back(struct sandbox *sandbox)
{
	struct activity_log *log = sandbox->core->private->activity;
	struct activity_head *head = &sandbox->life->activity;
	if (!log || list_empty(&log->pending))
		return;
	struct pending_entry *last = list_entry(log->pending.previous, struct pending_entry, link);
	if (!id_equal(&last->row.sandbox, &sandbox->row.id) || last->row.number != head->number)
		return;
	head->number--;
	memcpy(head->hash, last->row.previous, sizeof(head->hash));
	log->count--;
	pending_entry_free(last);
}

/* --- start, stop, retention --- */

void activity_start(struct core *core)
{
	struct activity_log *log = calloc(1, sizeof(*log));
	if (!log)
		abort();
	log->core = core;
	list_init(&log->pending);
	list_init(&log->written);
	list_init(&log->listeners);
	uv_timer_init(core->loop, &log->timer);
	core->private->activity = log;
}

static void activity_flush_timer_closed(uv_handle_t *handle)
{
	free(container_of((uv_timer_t *)handle, struct activity_log, timer));
}

void activity_stop(struct core *core)
{
	struct activity_log *log = core->private->activity;
	if (!log)
		return;
	if (!core->private->let_go)
		activity_flush(core);
	if (log->count > 0)
		log_error("%u entries of the activity are lost", log->count);
	core->private->activity = NULL;
	while (!list_empty(&log->pending))
		pending_entry_free(list_entry(log->pending.next, struct pending_entry, link));
	while (!list_empty(&log->written))
		pending_entry_free(list_entry(log->written.next, struct pending_entry, link));
	/* The listeners' owners free them: they are only taken out of the list. */
	while (!list_empty(&log->listeners))
		list_remove(log->listeners.next);
	uv_close((uv_handle_t *)&log->timer, activity_flush_timer_closed);
}

/* The newest entry of a live sandbox stays, since the next one is chained to it. */
static bool newest_entry_keep(void *data, const struct id *sandbox, uint64_t number)
{
	struct sandbox *living = sandbox_by_id(data, sandbox);
	return living && (head_load(data, sandbox, &living->life->activity) < 0 ||
			  living->life->activity.number == number);
}

static bool activity_prune_sandbox(struct core *core, struct sandbox *sandbox)
{
	struct activity_head *head = &sandbox->life->activity;
	uint32_t most = core->config.activity_entries;
	struct error error;
	if (most == 0 || !head->loaded || head->number - head->first < most)
		return false;
	uint64_t first = head->number - most + 1;
	int gone = store_activity_prune_sandbox(core->store, sandbox->row.workspace,
						&sandbox->row.id, first, &error);
	if (gone < 0) {
		log_warning("old activity cannot be removed: %s", error.message);
		return false;
	}
	if (gone == 0)
		head->first = first;
	return gone > 0;
}

bool activity_prune(struct core *core)
{
	struct activity_log *log = core->private->activity;
	int64_t days = core->config.activity_days;
	struct error error;
	bool more = false;
	if (!log)
		return false;
	if (days > 0 && store_activity_prune_age(
			    core->store, clock_wall() - days * 86400 * NSEC_PER_SEC,
			    &log->prune_cursor, newest_entry_keep, core, &more, &error) < 0) {
		log_warning("old activity cannot be removed: %s", error.message);
		more = false;
	}
	/* The next round begins at the oldest again: entries that were kept may be removable by
	 * then. */
	if (!more)
		log->prune_cursor = 0;
	log->too_many = false;
	list_each (&core->sandboxes, node)
		more |= activity_prune_sandbox(core, list_entry(node, struct sandbox, link));
	return more;
}
