/* Reading long messages in a thread (parse.h). Called by the transports; the thread touches nothing
 * but its own piece of work. */
#include "mcp/parse.h"

#include <stdlib.h>

struct mcp_parse {
	uv_work_t work;
	struct buffer text;
	json_t *json;
	struct mcp_problem problem;
	void (*done)(void *data, json_t *json, const struct mcp_problem *problem);
	void *data;
};

static void parse_work(uv_work_t *work)
{
	struct mcp_parse *parse = container_of(work, struct mcp_parse, work);
	if (message_parse(parse->text.data, parse->text.size, &parse->json, &parse->problem) < 0)
		parse->json = NULL;
}

static void parse_after(uv_work_t *work, int status)
{
	struct mcp_parse *parse = container_of(work, struct mcp_parse, work);
	if (status < 0)
		problem_set(&parse->problem, MCP_INTERNAL_ERROR, 503, "the server ends");
	buffer_done(&parse->text);
	if (parse->done)
		parse->done(parse->data, parse->json, &parse->problem);
	else
		json_decref(parse->json);
	free(parse);
}

struct mcp_parse *parse_begin(uv_loop_t *loop, struct buffer *text,
			      void (*done)(void *data, json_t *json,
					   const struct mcp_problem *problem),
			      void *data)
{
	struct mcp_parse *parse = calloc(1, sizeof(*parse));
	if (!parse)
		abort();
	parse->text = *text;
	*text = BUFFER(0);
	parse->done = done;
	parse->data = data;
	uv_queue_work(loop, &parse->work, parse_work, parse_after);
	return parse;
}

void parse_forget(struct mcp_parse *parse)
{
	if (parse)
		parse->done = NULL;
}
