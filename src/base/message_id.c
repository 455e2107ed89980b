/* See message_id.h. Called by the daemon and by `caisson mcp` for messages that they refuse.
 * Pure. */
#include "base/message_id.h"

#include <string.h>

#include "base/macros.h"
#include "base/word.h"

static bool byte_is_one_of(char byte, const char *bytes)
{
	return byte && strchr(bytes, byte);
}

static void token_keep(struct message_id *id, char byte)
{
	if (id->token == TOKEN_NAME && id->name_size < sizeof(id->name))
		id->name[id->name_size++] = byte;
	if (id->token != TOKEN_ID)
		return;
	if (id->size < sizeof(id->text))
		id->text[id->size++] = byte;
	else
		id->over = true; /* too long for an id: reply without one */
}

static void token_begin(struct message_id *id, char byte)
{
	id->token = TOKEN_OTHER;
	if (id->depth != 1)
		return;
	if (!id->in_value) {
		id->token = TOKEN_NAME;
		id->name_size = 0;
	} else if (id->names_id) {
		id->token = TOKEN_ID;
		id->size = 0;
		token_keep(id, byte);
	}
}

static bool token_name_is(const struct message_id *id, const char *name)
{
	return id->name_size == strlen(name) && memcmp(id->name, name, id->name_size) == 0;
}

static void string_end(struct message_id *id)
{
	id->in_string = false;
	if (id->token == TOKEN_NAME) {
		id->names_id = !id->found && token_name_is(id, "id");
		id->has_method |= token_name_is(id, "method");
	} else if (id->token == TOKEN_ID) {
		token_keep(id, '"');
		id->found = !id->over;
		id->names_id = false;
	}
	id->token = TOKEN_OTHER;
}

static void string_feed(struct message_id *id, char byte)
{
	if (!id->escape && byte == '"') {
		string_end(id);
		return;
	}
	id->escape = !id->escape && byte == '\\';
	token_keep(id, byte);
}

static void structure_feed(struct message_id *id, char byte)
{
	switch (byte) {
	case '"':
		id->in_string = true;
		token_begin(id, byte);
		break;
	case '{':
	case '[':
		/* A batch has no id of its own. */
		id->over = id->depth == 0 && byte == '[';
		id->depth++;
		break;
	case '}':
	case ']':
		id->over = id->depth <= 1;
		id->depth -= !id->over;
		break;
	case ':':
		id->in_value |= id->depth == 1;
		break;
	case ',':
		id->in_value &= id->depth != 1;
		break;
	default:
		if (byte_is_one_of(byte, "-0123456789"))
			token_begin(id, byte);
		break;
	}
}

static void plain_feed(struct message_id *id, char byte)
{
	if (id->token == TOKEN_ID) {
		if (byte_is_one_of(byte, "-0123456789")) {
			token_keep(id, byte);
			return;
		}
		id->found = byte_is_one_of(byte, ",} \t\r\n");
		id->names_id = false;
		id->token = TOKEN_OTHER;
	}
	structure_feed(id, byte);
}

/* Most of a long message is one long string, which can be skipped. */
static size_t string_skippable_size(const char *data, size_t size)
{
	size_t at = 0;
	while (size - at >= 8) {
		uint64_t word = word_load(data + at);
		if (word_has(word, '"') || word_has(word, '\\'))
			break;
		at += 8;
	}
	return at;
}

void message_id_feed(struct message_id *id, const char *data, size_t size)
{
	for (size_t at = 0; at < size && !id->over;) {
		if (id->in_string && id->token == TOKEN_OTHER && !id->escape)
			at += string_skippable_size(data + at, size - at);
		if (at == size)
			break;
		if (id->in_string)
			string_feed(id, data[at++]);
		else
			plain_feed(id, data[at++]);
		id->over |= id->found && id->has_method;
	}
}

size_t message_id_size(const struct message_id *id)
{
	return id->found && id->has_method ? id->size : 0;
}
