/* GET /v1/sandboxes: a page of sandboxes, newest first, filtered. Runs on the loop and reads the
 * store: a request examines a bounded number of rows, and its cursor continues from there. */
#include "edge/call.h"

#include <stdio.h>
#include <string.h>

#include "api/sandbox/record.h"
#include "api/sandbox/sandboxes.h"
#include "base/text.h"
#include "core/sandbox/labels.h"

#define LIST_DEFAULT 100
#define LIST_MAX 1000
#define SCAN_MAX 1000 /* rows that one request reads to find matches */
#define CURSOR_MAX 48

struct sandbox_list_call {
	struct call *call;
	struct json_writer writer;
	/* Of the query; NULL: not given. */
	const char *state_name, *status, *name, *prefix, *after;
	uint32_t state; /* enum sandbox_state; 0 = any */
	struct query_pairs labels, metadata;
	bool all;
	uint64_t limit;
	int64_t before_wall; /* of the last sandbox of the page before; 0 = begin with the newest */
	struct id before;
	uint64_t count, scanned;
	char cursor[CURSOR_MAX]; /* of the last examined sandbox */
	bool more;
};

const struct field sandboxes_query[] = {
    {"state", FIELD_TEXT_AT(struct sandbox_list_call, state_name), FIELD_WORDS_TOLD, .max = 15,
     .words = SANDBOX_STATE_NAMES},
    {"status", FIELD_TEXT_AT(struct sandbox_list_call, status), FIELD_WORDS_TOLD, .max = 15,
     .words = SANDBOX_STATE_NAMES},
    {"name", FIELD_TEXT_AT(struct sandbox_list_call, name), .max = NAME_MAX_LENGTH},
    {"name_prefix", FIELD_TEXT_AT(struct sandbox_list_call, prefix), .max = NAME_MAX_LENGTH},
    {"all", FIELD_BOOL_AT(struct sandbox_list_call, all)},
    {"limit", FIELD_UINT_AT(struct sandbox_list_call, limit), .min = 1, .max = LIST_MAX,
     .fallback = LIST_DEFAULT},
    {"cursor", FIELD_TEXT_AT(struct sandbox_list_call, after), .max = CURSOR_MAX - 1,
     .shape = "\"type\":\"string\",\"pattern\":\"^[1-9][0-9]*-[a-z][a-z0-9]{15}$\""},
    {"label", FIELD_QUERY_PAIRS_AT(struct sandbox_list_call, labels),
     .shape = "\"type\":\"string\",\"pattern\":\"^[^=]+=\",\"maxLength\":511"},
    {"metadata", FIELD_QUERY_PAIRS_AT(struct sandbox_list_call, metadata),
     .shape = "\"type\":\"string\",\"pattern\":\"^(?!secret\\\\.)[^=]+=\",\"maxLength\":511"},
    {0},
};

/* The filters that need the row itself; the store has filtered by state and name. */
static bool listing_wants(const struct sandbox_list_call *listing, const struct sandbox_row *row)
{
	if (listing->prefix && (!row->name || !text_starts(row->name, listing->prefix)))
		return false;
	return packed_has(row->labels, row->labels_size, listing->labels.pairs,
			  listing->labels.count) &&
	       packed_has(row->metadata, row->metadata_size, listing->metadata.pairs,
			  listing->metadata.count);
}

static bool listing_is_filtered(const struct sandbox_list_call *listing)
{
	return listing->prefix || listing->labels.count > 0 || listing->metadata.count > 0;
}

/* Newest first. The cursor is the creation time of the last examined sandbox, and its id: it stays
 * valid when sandboxes come and go between two pages. */
static bool listing_add(void *data, const struct sandbox_row *row)
{
	struct sandbox_list_call *listing = data;
	if (listing->count == listing->limit || listing->scanned == SCAN_MAX) {
		listing->more = true;
		return false;
	}
	listing->scanned++;
	snprintf(listing->cursor, sizeof(listing->cursor), "%lld-%s", (long long)row->created_wall,
		 row->id.text);
	/* For a live sandbox the record in memory is newer. */
	struct sandbox *live = sandbox_by_id(listing->call->core, &row->id);
	const struct sandbox_row *known = live ? &live->row : row;
	if (!listing_wants(listing, known))
		return true;
	put_sandbox(&listing->writer, NULL, known, live);
	listing->count++;
	return true;
}

static int cursor_parse(struct sandbox_list_call *listing, struct error *error)
{
	char text[CURSOR_MAX];
	uint64_t wall;
	snprintf(text, sizeof(text), "%s", listing->after);
	char *id = strchr(text, '-');
	if (id)
		*id++ = '\0';
	if (!id || text_to_u64(text, 1, INT64_MAX, &wall) < 0 || id_parse(id, &listing->before) < 0)
		return error_set(error, ERROR_INVALID,
				 "query parameter `cursor` must be `next_cursor` of another page");
	listing->before_wall = (int64_t)wall;
	return 0;
}

int sandbox_state_parse(const char *text, enum sandbox_state *ret_state, struct error *error)
{
	for (uint32_t state = SANDBOX_CREATING; state <= SANDBOX_ENDED; state++) {
		if (strcmp(sandbox_state_name((enum sandbox_state)state), text) != 0)
			continue;
		*ret_state = (enum sandbox_state)state;
		return 0;
	}
	char names[160] = "";
	size_t size = 0;
	for (uint32_t state = SANDBOX_CREATING; state <= SANDBOX_ENDED && size < sizeof(names);
	     state++)
		size += (size_t)snprintf(names + size, sizeof(names) - size, "%s%s",
					 state == SANDBOX_CREATING ? "" : ", ",
					 sandbox_state_name((enum sandbox_state)state));
	return error_set(error, ERROR_INVALID, "there is no state `%.32s`; it is one of %s", text,
			 names);
}

static int sandbox_list_parse(struct sandbox_list_call *listing, struct error *error)
{
	enum sandbox_state number = 0;
	if (call_query(listing->call, listing, error) < 0)
		return -1;
	/* A filter by a secret would allow guessing it. */
	for (size_t i = 0; i < listing->metadata.count; i++)
		if (metadata_secret(listing->metadata.pairs[i].key))
			return error_set(
			    error, ERROR_INVALID,
			    "query parameter `metadata`: `secret.` keys are write-only");
	const char *state = listing->state_name ? listing->state_name : listing->status;
	if (listing->state_name && listing->status)
		return error_set(error, ERROR_INVALID, "`state` and `status` are the same");
	if (state && sandbox_state_parse(state, &number, error) < 0)
		return error_prepend(error, "query parameter `%s`",
				     listing->status ? "status" : "state");
	listing->state = (uint32_t)number;
	return listing->after ? cursor_parse(listing, error) : 0;
}

/* A token for one sandbox lists only that one. */
static void sandbox_list_bound(struct sandbox_list_call *listing)
{
	const struct principal *principal = &listing->call->principal;
	struct sandbox_row row = {0};
	struct error error;
	if (sandbox_find_row(listing->call->core, principal, principal->sandbox.text, &row,
			     &error) < 0)
		return;
	bool right = (row.state != SANDBOX_ENDED || listing->all) &&
		     (!listing->state || row.state == listing->state) &&
		     (!listing->name || (row.name && strcmp(row.name, listing->name) == 0));
	if (right && listing->before_wall == 0)
		listing_add(listing, &row);
	sandbox_row_done(&row);
}

static int listing_read_page(struct sandbox_list_call *listing, struct error *error)
{
	struct call *call = listing->call;
	if (id_is_set(&call->principal.sandbox)) {
		sandbox_list_bound(listing);
		return 0;
	}
	/* One more than needed shows whether there is another page. */
	uint32_t limit = listing_is_filtered(listing) ? SCAN_MAX : (uint32_t)listing->limit;
	const struct sandbox_page page = {.live_only = !listing->all,
					  .state = listing->state,
					  .limit = limit + 1,
					  .name = listing->name,
					  .before_wall = listing->before_wall,
					  .before = listing->before};
	return sandbox_page(call->core, call->principal.workspace, &page, listing_add, listing,
			    error);
}

void sandboxes_get(struct call *call)
{
	struct sandbox_list_call listing = {.call = call};
	struct error error;
	if (sandbox_list_parse(&listing, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	/* A request for the state `ended` includes tombstones. */
	listing.all |= listing.state == SANDBOX_ENDED;
	struct buffer buffer = BUFFER(REPLY_MAX);
	listing.writer = json_writer_on(&buffer);
	put_object(&listing.writer, NULL);
	put_array(&listing.writer, "items");
	if (listing_read_page(&listing, &error) < 0) {
		buffer_done(&buffer);
		reply_error(call, &error);
		return;
	}
	put_array_end(&listing.writer);
	put_text(&listing.writer, "next_cursor", listing.more ? listing.cursor : NULL);
	put_object_end(&listing.writer);
	reply_json(call, 200, &listing.writer);
}
