/* OpenSandbox's presentation of a sandbox, and its list with filter and pages. Called by its tools;
 * answers from memory, nothing blocks. */
#include "mcp/dialects/opensandbox.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "core/sandbox/labels.h"
#include "core/sandbox/template.h"
#include "core/account/access.h"
#include "proto/init_messages.h"

#define PAGE_SIZE_DEFAULT 20
#define PAGE_SIZE_MAX 200
#define FILTER_METADATA_MAX SANDBOX_METADATA_MAX

/* OpenSandbox has no state for a sandbox whose processes ended and whose files are kept; like a
 * paused one, it continues with the next command. */
const char *opensandbox_state(const struct sandbox_row *row)
{
	static const char *const names[] = {
	    [SANDBOX_CREATING] = "Pending",  [SANDBOX_RUNNING] = "Running",
	    [SANDBOX_PAUSING] = "Pausing",   [SANDBOX_PAUSED] = "Paused",
	    [SANDBOX_STOPPED] = "Paused",    [SANDBOX_RESUMING] = "Resuming",
	    [SANDBOX_STARTING] = "Resuming", [SANDBOX_STOPPING] = "Stopping",
	    [SANDBOX_DELETING] = "Stopping", [SANDBOX_ENDED] = "Terminated"};
	if (row->state >= ARRAY_SIZE(names) || !names[row->state] ||
	    (row->state == SANDBOX_ENDED && row->end_reason == END_REASON_ERROR))
		return "Failed";
	return names[row->state];
}

static int64_t last_transition(const struct sandbox_row *row)
{
	if (row->ended_wall)
		return row->ended_wall;
	return row->paused_wall ? row->paused_wall : row->started_wall;
}

static void put_status(struct json_writer *writer, const struct sandbox_row *row)
{
	char message[256];
	const char *said = row->end_message;
	if (!said && row->template_asked &&
	    text_format(message, sizeof(message), TEMPLATE_WARNING, row->template_asked) == 0)
		said = message;
	put_object(writer, "status");
	put_text(writer, "state", opensandbox_state(row));
	put_text(writer, "reason",
		 row->state == SANDBOX_ENDED ? end_reason_name((enum end_reason)row->end_reason)
					     : sandbox_state_name((enum sandbox_state)row->state));
	put_text(writer, "message", said);
	put_time(writer, "last_transition_at", last_transition(row));
	put_object_end(writer);
}

static void put_entrypoint(struct json_writer *writer, const struct sandbox_row *row)
{
	static const char *const keep_alive[] = {"tail", "-f", "/dev/null"};
	const char *asked = packed_value(row->metadata, row->metadata_size, OPENSANDBOX_ENTRYPOINT);
	json_t *words = asked ? json_loads(asked, JSON_REJECT_DUPLICATES, NULL) : NULL;
	size_t index;
	json_t *word;
	put_array(writer, "entrypoint");
	/* Users can change the metadata of their sandbox: anything but a list is ignored. */
	if (json_is_array(words)) {
		json_array_foreach(words, index, word)
		{
			if (json_is_string(word))
				put_text(writer, NULL, json_string_value(word));
		}
	} else {
		for (size_t i = 0; i < ARRAY_SIZE(keep_alive); i++)
			put_text(writer, NULL, keep_alive[i]);
	}
	put_array_end(writer);
	json_decref(words);
}

static void put_image(struct json_writer *writer, const struct sandbox_row *row)
{
	const char *image = packed_value(row->metadata, row->metadata_size, OPENSANDBOX_IMAGE);
	if (!image)
		image = row->template_asked ? row->template_asked : row->template;
	put_object(writer, "image");
	put_text(writer, "image", image);
	put_null(writer, "auth");
	put_object_end(writer);
}

static void put_metadata(struct json_writer *writer, const struct sandbox_row *row)
{
	size_t at = 0;
	struct bytes packed = {(const uint8_t *)row->metadata, row->metadata_size};
	const char *key, *value;
	put_object(writer, "metadata");
	while ((key = packed_next(packed, &at)) && (value = packed_next(packed, &at))) {
		if (text_starts(key, OPENSANDBOX_PREFIX) || metadata_secret(key))
			continue;
		put_key(writer, key);
		put_text(writer, NULL, value);
	}
	put_object_end(writer);
}

void opensandbox_put_info(struct json_writer *writer, const char *key,
			  const struct sandbox_row *row)
{
	put_object(writer, key);
	put_text(writer, "id", row->id.text);
	put_status(writer, row);
	put_entrypoint(writer, row);
	put_time(writer, "expires_at", row->deadline_wall);
	put_time(writer, "created_at", row->created_wall);
	put_image(writer, row);
	put_null(writer, "snapshot_id");
	put_object(writer, "platform");
	put_text(writer, "os", "linux");
#ifdef __aarch64__
	put_text(writer, "arch", "arm64");
#else
	put_text(writer, "arch", "amd64");
#endif
	put_object_end(writer);
	put_metadata(writer, row);
	put_object_end(writer);
}

void opensandbox_reply_info(struct mcp_request *request, const struct sandbox *sandbox)
{
	DONE_BUFFER struct buffer json = BUFFER(MIB);
	struct json_writer writer = json_writer_on(&json);
	put_object(&writer, NULL);
	put_text(&writer, "sandbox_id", sandbox->row.id.text);
	opensandbox_put_info(&writer, "info", &sandbox->row);
	put_object_end(&writer);
	dialect_reply(request, &writer);
}

/* --- sandbox_list --- */

struct filter {
	const json_t *states; /* NULL: any */
	struct pair metadata[FILTER_METADATA_MAX];
	size_t metadata_count;
	uint64_t page, page_size;
};

static int filter_metadata(struct filter *filter, const json_t *metadata, struct error *error)
{
	const char *key;
	json_t *value;
	if (json_object_size(metadata) > FILTER_METADATA_MAX)
		return error_set(error, ERROR_INVALID, "filter: `metadata` has more than %d keys",
				 FILTER_METADATA_MAX);
	json_object_foreach((json_t *)metadata, key, value)
	{
		if (!json_is_string(value))
			return error_set(error, ERROR_INVALID,
					 "filter: the value of `%.100s` in `metadata` must be a "
					 "string",
					 key);
		filter->metadata[filter->metadata_count++] =
		    (struct pair){key, json_string_value(value)};
	}
	return 0;
}

static int filter_parse(struct filter *filter, const json_t *asked, struct error *error)
{
	json_t *states = NULL, *metadata = NULL;
	const struct field_to fields[] = {
	    {"states", FIELD_ARRAY, &states},
	    {"metadata", FIELD_OBJECT, &metadata},
	    {"page_size", FIELD_UINT, &filter->page_size, false, 1, PAGE_SIZE_MAX},
	    {"page", FIELD_UINT, &filter->page, false, 0, INT32_MAX},
	};
	if (!asked)
		return 0;
	if (dialect_entry(asked, "filter", fields, ARRAY_SIZE(fields), error) < 0 ||
	    dialect_texts(states, "states", 64, error) < 0)
		return -1;
	/* Pages count from 1; some clients send 0 for the first. */
	filter->page = MAX(filter->page, (uint64_t)1);
	filter->states = json_array_size(states) > 0 ? states : NULL;
	return filter_metadata(filter, metadata, error);
}

static bool filter_matches(const struct filter *filter, const struct sandbox_row *row)
{
	size_t index;
	json_t *state;
	bool found = !filter->states;
	if (filter->states) {
		json_array_foreach(filter->states, index, state)
		{
			found |= strcasecmp(json_string_value(state), opensandbox_state(row)) == 0;
		}
	}
	return found && packed_has(row->metadata, row->metadata_size, filter->metadata,
				   filter->metadata_count);
}

/* The matching sandboxes, newest last. The caller frees the array. */
static struct sandbox **sandboxes_collect(struct mcp_request *request, const struct filter *filter,
					  size_t *ret_count)
{
	struct sandbox **found = calloc((size_t)request->core->sandbox_count + 1, sizeof(*found));
	struct sandbox *sandbox = NULL;
	size_t count = 0;
	if (!found)
		abort();
	while ((sandbox = sandbox_next(request->core, &request->principal, sandbox)))
		if (filter_matches(filter, &sandbox->row) && count <= request->core->sandbox_count)
			found[count++] = sandbox;
	*ret_count = count;
	return found;
}

static void opensandbox_reply_page(struct mcp_request *request, const struct filter *filter,
				   struct sandbox *const *found, size_t count)
{
	DONE_BUFFER struct buffer json = BUFFER(MCP_ANSWER_MAX);
	struct json_writer writer = json_writer_on(&json);
	uint64_t first = (filter->page - 1) * filter->page_size;
	uint64_t pages = (count + filter->page_size - 1) / filter->page_size;
	put_object(&writer, NULL);
	put_array(&writer, "sandbox_infos");
	for (uint64_t i = first; i < count && i < first + filter->page_size; i++)
		opensandbox_put_info(&writer, NULL, &found[count - 1 - i]->row);
	put_array_end(&writer);
	put_object(&writer, "pagination");
	put_uint(&writer, "page", filter->page);
	put_uint(&writer, "page_size", filter->page_size);
	put_uint(&writer, "total_items", count);
	put_uint(&writer, "total_pages", pages);
	put_bool(&writer, "has_next_page", filter->page < pages);
	put_object_end(&writer);
	put_object_end(&writer);
	dialect_reply(request, &writer);
}

void opensandbox_list(struct mcp_request *request, const json_t *arguments)
{
	json_t *asked = NULL;
	struct filter filter = {.page = 1, .page_size = PAGE_SIZE_DEFAULT};
	struct error error;
	size_t count;
	const struct field_to fields[] = {{"filter", FIELD_OBJECT, &asked}};
	if (!dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		return;
	if (filter_parse(&filter, asked, &error) < 0) {
		content_refuse(request, "%s", error.message);
		return;
	}
	struct sandbox **found = sandboxes_collect(request, &filter, &count);
	mcp_progress_of(request, 1.0, 1.0, "listed");
	opensandbox_reply_page(request, &filter, found, count);
	free(found);
}
