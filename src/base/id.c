/* Makes, checks and compares ids and names. */
#include "base/id.h"

#include <errno.h>
#include <string.h>

#include "base/random.h"

static bool is_lower(char c)
{
	return c >= 'a' && c <= 'z';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

struct id id_new(void)
{
	static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";
	unsigned char random[ID_LENGTH];
	struct id id;
	random_bytes(random, sizeof(random));
	for (int i = 0; i < ID_LENGTH; i++)
		id.text[i] = alphabet[random[i] % 32];
	id.text[0] = alphabet[random[0] % 16];
	id.text[ID_LENGTH] = '\0';
	return id;
}

bool id_valid(const char *text)
{
	if (strnlen(text, ID_LENGTH + 1) != ID_LENGTH || !is_lower(text[0]))
		return false;
	for (int i = 0; i < ID_LENGTH; i++)
		if (!is_lower(text[i]) && !is_digit(text[i]))
			return false;
	return true;
}

bool name_valid(const char *text)
{
	size_t length = strnlen(text, NAME_MAX_LENGTH + 1);
	if (length == 0 || length > NAME_MAX_LENGTH || id_valid(text))
		return false;
	for (size_t i = 0; i < length; i++)
		if (!is_lower(text[i]) && !is_digit(text[i]) && text[i] != '-')
			return false;
	return text[0] != '-' && text[length - 1] != '-';
}

int id_parse(const char *text, struct id *ret_id)
{
	if (!id_valid(text))
		return -EINVAL;
	memcpy(ret_id->text, text, ID_LENGTH + 1);
	return 0;
}

bool id_equal(const struct id *a, const struct id *b)
{
	return memcmp(a->text, b->text, ID_LENGTH) == 0;
}

bool id_is_set(const struct id *id)
{
	return id->text[0] != '\0';
}
