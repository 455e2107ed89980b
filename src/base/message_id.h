/* Finds the id of a JSON-RPC request that is invalid JSON or too long to be kept. Its error
 * needs the id, because the client waits for an answer with that id. The text is fed in pieces,
 * so that an id behind a long `params` is found as well. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define MESSAGE_ID_MAX 1024

/* All zero at the beginning of a message. */
struct message_id {
	size_t depth;
	bool over;              /* the search is finished */
	bool in_string, escape; /* escape: behind a backslash */
	bool in_value;          /* behind a colon of the outermost object */
	bool names_id;          /* the value's name is "id" */
	bool has_method;
	enum { TOKEN_OTHER, TOKEN_NAME, TOKEN_ID } token; /* what is being read */
	char name[sizeof("method")];
	size_t name_size; /* of what fits */
	char text[MESSAGE_ID_MAX];
	size_t size; /* of text */
	bool found;  /* text is complete */
};

void message_id_feed(struct message_id *id, const char *data, size_t size);
/* The size of the outermost "id" in `text`: a string with its quotes, or the characters of an
 * integer. The caller checks that it is valid JSON. 0: there is none, or no `method`: a client's
 * answer to us has an id too, and is not answered. */
size_t message_id_size(const struct message_id *id);
