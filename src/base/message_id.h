/* The id of a JSON-RPC request that cannot be read as JSON, or is too long to be kept: its error
 * needs the id, since a client waits for an answer with that id and for no other. The text comes in
 * pieces, so that an id behind a long `params` is found as well. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define MESSAGE_ID_MAX 1024

/* All zero at the beginning of a message. */
struct message_id {
	size_t depth;
	bool over;              /* nothing more is looked for */
	bool in_string, escape; /* escape: behind a backslash */
	bool in_value;          /* of the outermost object: behind a colon */
	bool names_id;          /* of the value: its name is "id" */
	bool has_method;
	enum { TOKEN_OTHER, TOKEN_NAME, TOKEN_ID } token; /* what is being read */
	char name[sizeof("method")];
	size_t name_size; /* as far as it fits */
	char text[MESSAGE_ID_MAX];
	size_t size; /* of text */
	bool found;  /* text is whole */
};

void message_id_feed(struct message_id *id, const char *data, size_t size);
/* The size of the outermost "id" in `text`: a string with its quotes, or the characters of a whole
 * number. The caller checks that it is valid JSON. 0: there is none, or no `method`: an answer of
 * the client's to us has an id too, and gets no answer. */
size_t message_id_size(const struct message_id *id);
