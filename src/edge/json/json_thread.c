/* See json_thread.h. Called by the router and by MCP's transports; the thread only uses its own
 * piece of work. */
#include "edge/json/json_thread.h"

#include <stddef.h>
#include <stdlib.h>

#include "edge/json/json.h"

struct json_parse {
	struct work_task task;
	struct work_share *share;
	struct buffer text;
	json_t *json;
	const struct json_parser *parser;
	void (*done)(void *data, json_t *json, const void *problem);
	void *data;
	_Alignas(max_align_t) char problem[];
};

static void json_parse_in_thread(struct work_task *task)
{
	struct json_parse *parse = container_of(task, struct json_parse, task);
	if (parse->parser->parse(parse->text.data, parse->text.size, &parse->json, parse->problem) <
	    0)
		parse->json = NULL;
	buffer_done(&parse->text);
}

static void json_parse_done(struct work_task *task)
{
	struct json_parse *parse = container_of(task, struct json_parse, task);
	/* A second reference, so that a value that nobody keeps is freed here. */
	if (parse->done)
		parse->done(parse->data, json_incref(parse->json), parse->problem);
	json_release(parse->json, parse->share);
	work_share_release(parse->share);
	free(parse);
}

struct json_parse *json_parse_begin(struct work_share *share, struct buffer *text,
				    const struct json_parser *parser,
				    void (*done)(void *data, json_t *json, const void *problem),
				    void *data)
{
	struct json_parse *parse = calloc(1, sizeof(*parse) + parser->problem_size);
	if (!parse)
		abort();
	parse->task.in_thread = json_parse_in_thread;
	parse->task.done = json_parse_done;
	parse->share = share;
	parse->text = *text;
	*text = BUFFER(0);
	parse->parser = parser;
	parse->done = done;
	parse->data = data;
	work_in_thread(&parse->task, share);
	return parse;
}

void json_parse_forget(struct json_parse *parse)
{
	if (parse)
		parse->done = NULL;
}
