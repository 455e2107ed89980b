/* See message_id.h. Called by the daemon and by `caisson mcp` for messages that they refuse. Pure.
 */
#include "base/message_id.h"

#include <string.h>

#include "base/macros.h"
#include "base/word.h"

static bool is_one_of(char byte, const char *bytes)
{
	return byte && strchr(bytes, byte);
}

static void keep(struct message_id *id, char byte)
{
	if (id->token == TOKEN_NAME && id->name_size < sizeof(id->name))
		id->name[id->name_size++] = byte;
	if (id->token != TOKEN_ID)
		return;
	if (id->size < sizeof(id->text))
		id->text[id->size++] = byte;
	else
		id->over = true; /* too long for an id: an error without one */
}

static void begin(struct message_id *id, char byte)
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
		keep(id, byte);
	}
}

static bool name_is(const struct message_id *id, const char *name)
{
	return id->name_size == strlen(name) && memcmp(id->name, name, id->name_size) == 0;
}

static void string_ended(struct message_id *id)
{
	id->in_string = false;
	if (id->token == TOKEN_NAME) {
		id->names_id = !id->found && name_is(id, "id");
		id->has_method |= name_is(id, "method");
	} else if (id->token == TOKEN_ID) {
		keep(id, '"');
		id->found = !id->over;
		id->names_id = false;
	}
	id->token = TOKEN_OTHER;
}

static void string_byte(struct message_id *id, char byte)
{
	if (!id->escape && byte == '"') {
		string_ended(id);
		return;
	}
	id->escape = !id->escape && byte == '\\';
	keep(id, byte);
}

static void structure_byte(struct message_id *id, char byte)
{
	switch (byte) {
	case '"':
		id->in_string = true;
		begin(id, byte);
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
		if (is_one_of(byte, "-0123456789"))
			begin(id, byte);
		break;
	}
}

static void plain_byte(struct message_id *id, char byte)
{
	if (id->token == TOKEN_ID) {
		if (is_one_of(byte, "-0123456789")) {
			keep(id, byte);
			return;
		}
		id->found = is_one_of(byte, ",} \t\r\n");
		id->names_id = false;
		id->token = TOKEN_OTHER;
	}
	structure_byte(id, byte);
}

/* Most of a long message is one long string that says nothing here. */
static size_t dull_size(const char *data, size_t size)
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
			at += dull_size(data + at, size - at);
		if (at == size)
			break;
		if (id->in_string)
			string_byte(id, data[at++]);
		else
			plain_byte(id, data[at++]);
		id->over |= id->found && id->has_method;
	}
}

size_t message_id_size(const struct message_id *id)
{
	return id->found && id->has_method ? id->size : 0;
}
