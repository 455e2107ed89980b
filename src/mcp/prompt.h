/* Prompts: rows of a face's table. prompts.c lists and gets them. */
#pragma once

#include "mcp/request.h"

struct prompt_argument {
	const char *name, *description;
	bool required;
};

struct prompt {
	const char *name, *title, *description;
	const struct prompt_argument *arguments; /* NULL name at the end; NULL: none */
	/* Answers with prompt_begin() ... prompt_end(); arguments is an object, never NULL. */
	void (*get)(struct mcp_request *request, const json_t *arguments);
	/* completion/complete; NULL: no values. Answers as mcp/resources/resource.h says. */
	void (*complete)(struct mcp_request *request, const char *argument, const char *value);
};

/* The usual face's. */
extern const struct prompt *const usual_prompts[]; /* prompts_usual.c */

void prompts_list(struct mcp_request *request);
void prompts_get(struct mcp_request *request);
const struct prompt *prompt_find(const struct mcp_request *request, const char *name);

/* The answer: begin, messages of the user, end. */
void prompt_begin(struct mcp_request *request);
void prompt_text(struct mcp_request *request, const char *text);
void prompt_image(struct mcp_request *request, const char *type, const void *data, size_t size);
void prompt_resource(struct mcp_request *request, const char *uri, const char *type,
		     const char *text);
void prompt_end(struct mcp_request *request);
