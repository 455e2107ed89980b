/* Reading long messages in a thread (parse.h). Called by the transports; the thread touches nothing
 * but its own piece of work. */
#include "mcp/parse.h"

#include <stdlib.h>

#include "edge/json.h"

struct mcp_parse {
	struct work_task task;
	struct work_share *share;
	struct buffer text;
	json_t *json;
	struct mcp_problem problem;
	void (*done)(void *data, json_t *json, const struct mcp_problem *problem);
	void *data;
};

static void parse_in_thread(struct work_task *task)
{
	struct mcp_parse *parse = container_of(task, struct mcp_parse, task);
	if (message_parse(parse->text.data, parse->text.size, &parse->json, &parse->problem) < 0)
		parse->json = NULL;
	buffer_done(&parse->text);
}

static void parse_done(struct work_task *task)
{
	struct mcp_parse *parse = container_of(task, struct mcp_parse, task);
	/* A second reference, so that a message of which nobody keeps any is freed here. */
	if (parse->done)
		parse->done(parse->data, json_incref(parse->json), &parse->problem);
	json_release(parse->json, parse->share);
	work_share_release(parse->share);
	free(parse);
}

struct mcp_parse *parse_begin(struct work_share *share, struct buffer *text,
			      void (*done)(void *data, json_t *json,
					   const struct mcp_problem *problem),
			      void *data)
{
	struct mcp_parse *parse = calloc(1, sizeof(*parse));
	if (!parse)
		abort();
	parse->task.in_thread = parse_in_thread;
	parse->task.done = parse_done;
	parse->share = share;
	parse->text = *text;
	*text = BUFFER(0);
	parse->done = done;
	parse->data = data;
	work_in_thread(&parse->task, share);
	return parse;
}

void parse_forget(struct mcp_parse *parse)
{
	if (parse)
		parse->done = NULL;
}
