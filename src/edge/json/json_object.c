/* Whole JSON requests: parsed strictly, freed without blocking the loop. Called by the router;
 * works on memory. */
#include "edge/json/json.h"

#include <stdlib.h>

#include "base/limits.h"

/* The maximum of values in a tree that is freed on the loop. */
#define FREED_INLINE_MAX 500

/* The maximum of arguments and variables of a command, and some more. */
#define MESSAGE_VALUES_MAX (EXEC_ARGV_MAX + EXEC_ENV_MAX + 256)

static int json_object_parse(const char *data, size_t size, size_t values, json_t **ret_object,
			     struct error *error)
{
	const struct json_bounds bounds = {.depth = HTTP_JSON_DEPTH_MAX, .values = values};
	struct json_wrong wrong;
	json_t *json = json_read(data, size, &bounds, &wrong);
	if (!json)
		return error_set(error, ERROR_MALFORMED, "body: line %u, column %u: %s", wrong.line,
				 wrong.column, wrong.text);
	if (!json_is_object(json)) {
		json_decref(json);
		return error_set(error, ERROR_MALFORMED, "body: must be a JSON object");
	}
	*ret_object = json;
	return 0;
}

int json_parse(const char *data, size_t size, json_t **ret_object, struct error *error)
{
	return json_object_parse(data, size, HTTP_JSON_VALUES_MAX, ret_object, error);
}

int json_parse_message(const char *data, size_t size, json_t **ret_object, struct error *error)
{
	return json_object_parse(data, size, MESSAGE_VALUES_MAX, ret_object, error);
}

struct discarded {
	struct work_task task;
	json_t *json;
};

static void discarded_free(struct work_task *task)
{
	json_decref(container_of(task, struct discarded, task)->json);
}

static void discarded_done(struct work_task *task)
{
	free(container_of(task, struct discarded, task));
}

/* Subtracts the number of values in a tree; below 0: there are more. */
static int values_below(const json_t *json, int most)
{
	const char *key;
	size_t index;
	json_t *value;
	json_object_foreach((json_t *)json, key, value)
	{
		if (--most < 0 || (most = values_below(value, most)) < 0)
			return -1;
	}
	json_array_foreach(json, index, value)
	{
		if (--most < 0 || (most = values_below(value, most)) < 0)
			return -1;
	}
	return most;
}

void json_release(json_t *json, struct work_share *share)
{
	if (!share || values_below(json, FREED_INLINE_MAX) >= 0) {
		json_decref(json);
		return;
	}
	struct discarded *discarded = calloc(1, sizeof(*discarded));
	if (!discarded)
		abort();
	discarded->json = json;
	discarded->task.in_thread = discarded_free;
	discarded->task.done = discarded_done;
	work_in_thread(&discarded->task, share);
}
