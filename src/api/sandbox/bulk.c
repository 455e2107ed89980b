/* POST /v1/sandboxes/bulk: one action for many sandboxes, chosen by a selector. It continues when
 * the client disconnects. Runs on the loop; nothing blocks but the store's short calls. */
#include "core/sandbox/bulk.h"

#include <stdlib.h>
#include <string.h>

#include "api/sandbox/sandboxes.h"
#include "core/sandbox/labels.h"
#include "edge/call.h"
#include "edge/json/json_pairs.h"
#include "edge/fields/sandbox_fields.h"

#define DRAIN_SECONDS_DEFAULT 300
#define DRAIN_SECONDS_MAX (24 * 3600)

struct selector {
	json_t *ids, *names, *labels;
	const char *status;
};

/* Borrowed while the body is parsed. */
struct bulk_fields {
	struct bulk_spec spec;
	const char **sandboxes;
	struct pair *labels;
	struct selector selector;
	const char *action, *then;
};

#define LIST                                                                                       \
	"\"type\":\"array\",\"maxItems\":1000,\"minItems\":1,\"items\":{\"type\":\"string\","      \
	"\"maxLength\":127}"

static const struct field selector_fields[] = {
    {"ids", FIELD_ARRAY_AT(struct selector, ids), .shape = LIST},
    {"names", FIELD_ARRAY_AT(struct selector, names), .shape = LIST},
    {"labels", FIELD_OBJECT_AT(struct selector, labels), .shape = LABELS_SHAPE},
    {"status", FIELD_TEXT_AT(struct selector, status), FIELD_WORDS_TOLD,
     .words = SANDBOX_STATE_NAMES},
    {0},
};

const struct field sandboxes_bulk_fields[] = {
    {"action", FIELD_TEXT_AT(struct bulk_fields, action), FIELD_REQUIRED | FIELD_WORDS_TOLD,
     .words = "stop,start,pause,resume,drain,delete"},
    {"selector", FIELD_STRUCT_AT(struct bulk_fields, selector, struct selector),
     .inner = selector_fields,
     .rest = "All that is given must hold; ids and names together are one list."},
    {"all", FIELD_BOOL_AT(struct bulk_fields, spec.all),
     .rest = "Needed where nothing is selected: every sandbox of the workspace."},
    {"dry_run", FIELD_BOOL_AT(struct bulk_fields, spec.dry_run),
     .rest = "Only says which they are."},
    {"timeout_seconds", FIELD_UINT_AT(struct bulk_fields, spec.drain_seconds),
     .max = DRAIN_SECONDS_MAX, .fallback = DRAIN_SECONDS_DEFAULT, .rest = "Of drain."},
    {"then", FIELD_TEXT_AT(struct bulk_fields, then), .words = "stop,delete", .rest = "Of drain."},
    {0},
};

static void bulk_fields_done(struct bulk_fields *fields)
{
	free(fields->sandboxes);
	free(fields->labels);
}

static int bulk_add_list(struct bulk_fields *fields, const char *name, const json_t *list,
			 struct error *error)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *text = json_string_value(json_array_get(list, i));
		if (!text || strlen(text) >= CALL_PARAMETER_MAX)
			return error_set(error, ERROR_INVALID,
					 "selector: `%s` must hold ids or names, as strings", name);
		fields->sandboxes[fields->spec.sandbox_count++] = text;
	}
	return 0;
}

static int bulk_parse_selector(struct bulk_fields *fields, struct error *error)
{
	const struct selector *selector = &fields->selector;
	const json_t *ids = selector->ids, *names = selector->names;
	size_t count = json_array_size(ids) + json_array_size(names);
	if (count > BULK_MAX)
		return error_set(error, ERROR_LIMIT_EXCEEDED, "at most %d sandboxes at once",
				 BULK_MAX);
	if ((ids || names) && count == 0)
		return error_set(error, ERROR_INVALID, "selector: an empty list selects nothing");
	fields->sandboxes = calloc(count + 1, sizeof(*fields->sandboxes));
	if (!fields->sandboxes)
		abort();
	fields->spec.sandboxes = fields->sandboxes;
	if (bulk_add_list(fields, "ids", ids, error) < 0 ||
	    bulk_add_list(fields, "names", names, error) < 0 ||
	    json_pairs("labels", selector->labels, LABELS_MAX, LABELS_BYTES_MAX, &fields->labels,
		       &fields->spec.label_count, error) < 0)
		return -1;
	fields->spec.labels = fields->labels;
	if (selector->status &&
	    sandbox_state_parse(selector->status, &fields->spec.state, error) < 0)
		return error_prepend(error, "selector: status");
	return 0;
}

static int bulk_parse(struct call *call, struct bulk_fields *fields, struct error *error)
{
	if (call_fields(call, fields, error) < 0 ||
	    bulk_action_parse(fields->action, &fields->spec.action, error) < 0)
		return -1;
	fields->spec.drain_delete = fields->then && strcmp(fields->then, "delete") == 0;
	return bulk_parse_selector(fields, error);
}

static void put_result(struct json_writer *writer, const struct bulk_result *result)
{
	bool ok = result->error.kind == ERROR_NONE;
	put_object(writer, NULL);
	put_text(writer, "id", id_is_set(&result->id) ? result->id.text : NULL);
	put_text(writer, "name", result->name[0] ? result->name : NULL);
	put_bool(writer, "ok", ok);
	put_text(writer, "status",
		 result->state ? sandbox_state_name((enum sandbox_state)result->state) : NULL);
	if (!ok) {
		const struct error_info *info = error_info(result->error.kind);
		put_text(writer, "error", result->error.message);
		put_text(writer, "code", info->code);
		put_bool(writer, "retryable", info->retryable);
	}
	put_object_end(writer);
}

static void bulk_done(void *data, const struct bulk_result *results, size_t count)
{
	struct call *call = data;
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	size_t failed = 0, missing = 0;
	put_object(&writer, NULL);
	put_array(&writer, "results");
	for (size_t i = 0; i < count; i++) {
		put_result(&writer, &results[i]);
		failed += results[i].error.kind != ERROR_NONE;
		missing += !id_is_set(&results[i].id);
	}
	put_array_end(&writer);
	put_uint(&writer, "matched", count - missing);
	put_uint(&writer, "missing", missing);
	put_uint(&writer, "succeeded", count - failed);
	put_uint(&writer, "failed", failed);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
	call_release(call);
}

void sandboxes_bulk_post(struct call *call)
{
	struct bulk_fields fields = {0};
	struct error error;
	call_hold(call);
	if (bulk_parse(call, &fields, &error) < 0 ||
	    bulk_start(call->core, &call->principal, &fields.spec, bulk_done, call, &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
	bulk_fields_done(&fields);
}
