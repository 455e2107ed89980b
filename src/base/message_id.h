/* The id of a JSON-RPC message of which only the beginning is there: what is too long to be read is
 * refused by it. */
#pragma once

#include <stddef.h>

/* How many bytes of `data` are looked at. */
#define MESSAGE_ID_WITHIN 65536
#define MESSAGE_ID_MAX 1024

/* The text of the value of the outermost "id", a string with its quotes or a whole number; its
 * size, or 0: none is there. Of the string's inside only its end is known. */
size_t message_id_find(const char *data, size_t size, const char **ret_id);
