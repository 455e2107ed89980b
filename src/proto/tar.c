/* Reads and writes the headers of tar archives. Called by the init's pack and unpack and by the
 * command line; only the source makes system calls. It does not use printf(), which would make up
 * most of the init. */
#include "proto/tar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The fields of a header: offset and length. */
struct tar_field {
	uint16_t at, size;
};
static const struct tar_field NAME = {0, 100}, MODE = {100, 8}, UID = {108, 8}, GID = {116, 8},
			      SIZE = {124, 12}, MTIME = {136, 12}, CHECKSUM = {148, 8},
			      LINK = {157, 100}, MAGIC = {257, 8}, PREFIX = {345, 155};
#define TYPE_AT 156
#define MAGIC_USTAR "ustar\00000"
#define MAGIC_GNU "ustar  "
#define ID_MAX 4294967294LL
#define NSEC_DIGITS 9

/* Values of a pax header, or of GNU's long names, which replace those of the next header. */
enum { SAYS_PATH = 1, SAYS_LINK = 2, SAYS_SIZE = 4, SAYS_MTIME = 8, SAYS_UID = 16, SAYS_GID = 32 };

/* --- reading --- */

static uint32_t block_checksum(const uint8_t *block)
{
	uint32_t sum = 0;
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += i - CHECKSUM.at < CHECKSUM.size ? ' ' : block[i];
	return sum;
}

/* Octal digits between spaces, or base 256 if the top bit is set. */
static bool number_read(const uint8_t *block, struct tar_field field, int64_t min, int64_t max,
			int64_t *ret_value)
{
	const uint8_t *at = block + field.at, *end = at + field.size;
	int64_t value = 0;
	if (*at & 0x80) {
		value = *at & 0x40 ? -1 : 0;
		for (bool first = true; at < end; at++, first = false) {
			if (value > INT64_MAX >> 8 || value < INT64_MIN >> 8)
				return false;
			value = first ? (value * 64 | (*at & 0x3f)) : (value * 256 | *at);
		}
	} else {
		while (at < end && *at == ' ')
			at++;
		for (; at < end && *at >= '0' && *at <= '7'; at++)
			value = value * 8 + (*at - '0');
		/* Twelve octal digits are 36 bits, so this cannot overflow. */
		if (at < end && *at != ' ' && *at != '\0')
			return false;
	}
	*ret_value = value;
	return value >= min && value <= max;
}

/* Appends a text to `to`; it ends at a NUL or with its field. */
static void field_read(const uint8_t *block, struct tar_field field, char *to)
{
	size_t size = strnlen((const char *)block + field.at, field.size);
	memcpy(to, block + field.at, size);
	to[size] = '\0';
}

/* Reads decimal digits up to `end`. False if there is another byte or the number is too large. */
static bool decimal_read(const char *at, const char *end, int64_t max, int64_t *ret_value)
{
	int64_t value = 0;
	if (at == end)
		return false;
	for (; at < end; at++) {
		if (*at < '0' || *at > '9' || value > (max - (*at - '0')) / 10)
			return false;
		value = value * 10 + (*at - '0');
	}
	*ret_value = value;
	return true;
}

/* "[-]seconds[.fraction]"; digits beyond nanoseconds are dropped. */
static bool time_read(const char *at, const char *end, struct tar_entry *entry)
{
	bool negative = at < end && *at == '-';
	at += negative;
	const char *point = memchr(at, '.', (size_t)(end - at));
	int64_t seconds, fraction = 0;
	if (!decimal_read(at, point ? point : end, INT64_MAX / 4, &seconds))
		return false;
	size_t digits = 0;
	for (const char *place = point ? point + 1 : end; place < end; place++, digits++) {
		if (*place < '0' || *place > '9')
			return false;
		if (digits < NSEC_DIGITS)
			fraction = fraction * 10 + (*place - '0');
	}
	for (; digits < NSEC_DIGITS; digits++)
		fraction *= 10;
	entry->mtime = negative ? -seconds - (fraction > 0) : seconds;
	entry->mtime_ns = (uint32_t)(negative && fraction > 0 ? 1000000000 - fraction : fraction);
	return true;
}

static bool record_take_text(const char *at, const char *end, char to[GUEST_PATH_MAX])
{
	size_t size = (size_t)(end - at);
	if (size >= GUEST_PATH_MAX || memchr(at, '\0', size))
		return false;
	memcpy(to, at, size);
	to[size] = '\0';
	return true;
}

/* Takes one record of a pax header. NULL, or what is wrong with it. */
static const char *record_take(const char *key, const char *equals, const char *end,
			       struct tar_entry *entry, uint32_t *says)
{
	static const struct {
		char name[11];
		uint8_t says;
	} keys[] = {
	    {"path", SAYS_PATH}, {"linkpath", SAYS_LINK}, {"size", SAYS_SIZE},
	    {"uid", SAYS_UID},   {"gid", SAYS_GID},       {"mtime", SAYS_MTIME},
	};
	const char *value = equals + 1;
	size_t size = (size_t)(equals - key);
	int64_t number = 0;
	uint32_t what = 0;
	bool good = true;
	if (size > 10 && memcmp(key, "GNU.sparse", 10) == 0)
		return "sparse entries are not supported";
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (strlen(keys[i].name) == size && memcmp(key, keys[i].name, size) == 0)
			what = keys[i].says;
	if (what & (SAYS_PATH | SAYS_LINK))
		good = record_take_text(value, end, what == SAYS_PATH ? entry->path : entry->link);
	else if (what == SAYS_MTIME)
		good = time_read(value, end, entry);
	else if (what)
		good =
		    decimal_read(value, end, what == SAYS_SIZE ? INT64_MAX / 4 : ID_MAX, &number);
	if (what == SAYS_SIZE)
		entry->size = (uint64_t)number;
	else if (what == SAYS_UID)
		entry->uid = (uint32_t)number;
	else if (what == SAYS_GID)
		entry->gid = (uint32_t)number;
	*says |= what;
	return good ? NULL : "a pax record's value is out of range";
}

/* "length key=value\n", one after the other. */
static const char *records_take(const char *at, const char *end, struct tar_entry *entry,
				uint32_t *says)
{
	while (at < end) {
		const char *space = memchr(at, ' ', (size_t)(end - at));
		int64_t size;
		if (!space || !decimal_read(at, space, end - at, &size) || size <= space - at + 1 ||
		    at[size - 1] != '\n')
			return "a pax header is malformed";
		const char *equals = memchr(space + 1, '=', (size_t)(at + size - space - 1));
		if (!equals)
			return "a pax header is malformed";
		const char *why = record_take(space + 1, equals, at + size - 1, entry, says);
		if (why)
			return why;
		at += size;
	}
	return NULL;
}

/* Reads the data of a header that describes the next entry. */
static int extra_read(const struct tar_source *source, char type, uint64_t size,
		      struct tar_entry *entry, uint32_t *says, const char **ret_why)
{
	if (size > TAR_EXTRA_MAX) {
		*ret_why = "a header is too long";
		return -EBADMSG;
	}
	size_t padded = (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
	char *text = malloc(padded + 1);
	if (!text)
		return -ENOMEM;
	int result = source->read(source->data, text, padded);
	if (result == 0 && (type == 'L' || type == 'K')) {
		/* GNU: the name, with a NUL at its end. */
		size = strnlen(text, size);
		*says |= type == 'L' ? SAYS_PATH : SAYS_LINK;
		if (!record_take_text(text, text + size, type == 'L' ? entry->path : entry->link))
			*ret_why = "a name is too long";
	} else if (result == 0 && type == 'x') {
		*ret_why = records_take(text, text + size, entry, says);
	}
	free(text);
	return *ret_why ? -EBADMSG : result;
}

const char *tar_path_clean(char *path)
{
	const char *from = path;
	char *to = path;
	if (*from == '/')
		return "its name is absolute";
	while (*from != '\0') {
		size_t size = strcspn(from, "/");
		bool here = size == 0 || (size == 1 && from[0] == '.');
		if (size == 2 && from[0] == '.' && from[1] == '.')
			return "its name leads out of the directory";
		if (size > 255)
			return "a part of its name is too long";
		if (!here && to != path)
			*to++ = '/';
		if (!here) {
			memmove(to, from, size);
			to += size;
		}
		from += size + (from[size] == '/');
	}
	*to = '\0';
	return NULL;
}

static bool block_is_zero(const uint8_t *block)
{
	for (size_t i = 0; i < TAR_BLOCK; i++)
		if (block[i] != 0)
			return false;
	return true;
}

/* Reads the values that no earlier header has replaced. */
static const char *header_read_values(const uint8_t *block, uint32_t says, struct tar_entry *entry)
{
	int64_t mode, uid, gid, size, mtime;
	if (!number_read(block, MODE, 0, INT32_MAX, &mode) ||
	    !number_read(block, UID, 0, ID_MAX, &uid) ||
	    !number_read(block, GID, 0, ID_MAX, &gid) ||
	    !number_read(block, SIZE, 0, INT64_MAX / 4, &size) ||
	    !number_read(block, MTIME, INT64_MIN / 4, INT64_MAX / 4, &mtime))
		return "a number in its header is malformed";
	entry->mode = (uint32_t)mode & 07777;
	if (!(says & SAYS_UID))
		entry->uid = (uint32_t)uid;
	if (!(says & SAYS_GID))
		entry->gid = (uint32_t)gid;
	if (!(says & SAYS_SIZE))
		entry->size = (uint64_t)size;
	if (!(says & SAYS_MTIME)) {
		entry->mtime = mtime;
		entry->mtime_ns = 0;
	}
	if (!(says & SAYS_LINK))
		field_read(block, LINK, entry->link);
	if (!(says & SAYS_PATH)) {
		char *to = entry->path;
		if (memcmp(block + MAGIC.at, MAGIC_USTAR, 8) == 0 && block[PREFIX.at] != '\0') {
			field_read(block, PREFIX, to);
			to += strlen(to);
			*to++ = '/';
		}
		field_read(block, NAME, to);
	}
	return NULL;
}

/* Sets the entry's type, and checks that the other values fit it. */
static const char *header_take_type(char type, struct tar_entry *entry)
{
	size_t length = strlen(entry->path);
	bool slash = length > 0 && entry->path[length - 1] == '/';
	const char *why = NULL;
	switch (type) {
	case '\0':
	case '0':
	case '7':
		/* In old archives a directory is a name with a slash at its end. */
		entry->type = slash ? TAR_DIRECTORY : TAR_FILE;
		break;
	case '1':
		entry->type = TAR_HARDLINK;
		why = tar_path_clean(entry->link);
		break;
	case '2':
		entry->type = TAR_SYMLINK;
		break;
	case '5':
		/* Some programs write a size here; no data follows. */
		entry->type = TAR_DIRECTORY;
		entry->size = 0;
		break;
	case '3':
	case '4':
	case '6':
		entry->type = TAR_SPECIAL;
		break;
	default:
		return "its type is not supported";
	}
	if (entry->size > 0 && entry->type != TAR_FILE)
		return "only a file may have contents";
	if ((type == '1' || type == '2') && entry->link[0] == '\0')
		return "a link without a target";
	if (!why)
		why = tar_path_clean(entry->path);
	if (!why && entry->path[0] == '\0' && entry->type != TAR_DIRECTORY)
		return "it has no name";
	return why;
}

int tar_next(const struct tar_source *source, struct tar_entry *ret_entry, const char **ret_why)
{
	uint8_t block[TAR_BLOCK];
	uint32_t says = 0;
	int64_t sum, size;
	*ret_why = NULL;
	ret_entry->path[0] = ret_entry->link[0] = '\0';
	for (;;) {
		int result = source->read(source->data, block, TAR_BLOCK);
		if (result < 0)
			return result;
		if (block_is_zero(block)) {
			result = source->read(source->data, block, TAR_BLOCK);
			if (result < 0 || (says == 0 && block_is_zero(block)))
				return result;
			*ret_why = "a zero block in the middle";
			return -EBADMSG;
		}
		bool known = memcmp(block + MAGIC.at, MAGIC_USTAR, 8) == 0 ||
			     memcmp(block + MAGIC.at, MAGIC_GNU, 8) == 0 ||
			     memcmp(block + MAGIC.at, "\0\0\0\0\0\0\0\0", 8) == 0;
		if (!known || !number_read(block, CHECKSUM, 0, INT32_MAX, &sum) ||
		    sum != block_checksum(block)) {
			*ret_why = "not a tar header";
			return -EBADMSG;
		}
		char type = (char)block[TYPE_AT];
		if (type != 'x' && type != 'g' && type != 'L' && type != 'K')
			break;
		if (!number_read(block, SIZE, 0, INT64_MAX / 4, &size)) {
			*ret_why = "a number in its header is malformed";
			return -EBADMSG;
		}
		result = extra_read(source, type, (uint64_t)size, ret_entry, &says, ret_why);
		if (result < 0)
			return result;
	}
	*ret_why = header_read_values(block, says, ret_entry);
	if (!*ret_why)
		*ret_why = header_take_type((char)block[TYPE_AT], ret_entry);
	return *ret_why ? -EBADMSG : 1;
}

/* --- writing --- */

/* Writes octal digits into the whole field except its last byte. False if they do not fit. */
static bool octal_write(uint8_t *block, struct tar_field field, uint64_t value)
{
	uint8_t *at = block + field.at + field.size - 1;
	while (at > block + field.at) {
		*--at = (uint8_t)('0' + (value & 7));
		value >>= 3;
	}
	return value == 0;
}

static void header_write_name(uint8_t *block, struct tar_field field, const char *text)
{
	memcpy(block + field.at, text, strnlen(text, field.size));
}

static size_t number_to_decimal(uint64_t value, size_t digits, char *to)
{
	char turned[24];
	size_t count = 0;
	do
		turned[count++] = (char)('0' + value % 10);
	while ((value /= 10) > 0 || count < digits);
	for (size_t i = 0; i < count; i++)
		to[i] = turned[count - 1 - i];
	return count;
}

/* "length key=value\n", where the length counts its own digits. */
static size_t record_add(char *to, const char *key, const char *value, size_t value_size)
{
	char number[24];
	size_t key_size = strlen(key), rest = key_size + value_size + 3, digits = 0;
	while (digits != number_to_decimal(rest + digits, 0, number))
		digits++;
	char *at = to;
	memcpy(at, number, digits);
	at += digits;
	*at++ = ' ';
	memcpy(at, key, key_size);
	at += key_size;
	*at++ = '=';
	memcpy(at, value, value_size);
	at += value_size;
	*at++ = '\n';
	return (size_t)(at - to);
}

static size_t record_add_number(char *to, const char *key, uint64_t value)
{
	char text[24];
	return record_add(to, key, text, number_to_decimal(value, 0, text));
}

/* Before 1970: -0.5 s is second -1 plus half a second. */
static size_t record_add_time(char *to, int64_t seconds, uint32_t nanoseconds)
{
	char text[48];
	size_t size = 0;
	if (seconds < 0) {
		text[size++] = '-';
		seconds = -seconds - (nanoseconds > 0);
		nanoseconds = nanoseconds > 0 ? 1000000000 - nanoseconds : 0;
	}
	size += number_to_decimal((uint64_t)seconds, 0, text + size);
	if (nanoseconds > 0) {
		text[size++] = '.';
		size += number_to_decimal(nanoseconds, NSEC_DIGITS, text + size);
	}
	return record_add(to, "mtime", text, size);
}

static void header_finish(uint8_t *block, char type)
{
	block[TYPE_AT] = (uint8_t)type;
	memcpy(block + MAGIC.at, MAGIC_USTAR, MAGIC.size);
	uint32_t sum = block_checksum(block);
	/* The traditional form: six digits, NUL, space. */
	(void)octal_write(block, (struct tar_field){CHECKSUM.at, 7}, sum);
	block[CHECKSUM.at + 7] = ' ';
}

size_t tar_write(const struct tar_entry *entry, uint8_t to[TAR_HEADER_MAX])
{
	static const char types[] = {[TAR_FILE] = '0',
				     [TAR_DIRECTORY] = '5',
				     [TAR_SYMLINK] = '2',
				     [TAR_HARDLINK] = '1',
				     [TAR_SPECIAL] = '6'};
	uint8_t *extra = to, header[TAR_BLOCK] = {0};
	char *records = (char *)to + TAR_BLOCK, *at = records;
	memset(to, 0, TAR_HEADER_MAX);
	header_write_name(header, NAME, entry->path);
	header_write_name(header, LINK, entry->link);
	(void)octal_write(header, MODE, entry->mode);
	if (strlen(entry->path) > NAME.size)
		at += record_add(at, "path", entry->path, strlen(entry->path));
	if (strlen(entry->link) > LINK.size)
		at += record_add(at, "linkpath", entry->link, strlen(entry->link));
	if (!octal_write(header, UID, entry->uid))
		at += record_add_number(at, "uid", entry->uid);
	if (!octal_write(header, GID, entry->gid))
		at += record_add_number(at, "gid", entry->gid);
	if (!octal_write(header, SIZE, entry->size))
		at += record_add_number(at, "size", entry->size);
	if (!octal_write(header, MTIME, (uint64_t)MAX(entry->mtime, 0)) || entry->mtime < 0 ||
	    entry->mtime_ns > 0)
		at += record_add_time(at, entry->mtime, entry->mtime_ns);
	header_finish(header, types[entry->type]);
	size_t used = 0, size = (size_t)(at - records);
	if (size > 0) {
		header_write_name(extra, NAME, "pax");
		(void)octal_write(extra, MODE, 0644);
		(void)octal_write(extra, SIZE, size);
		(void)octal_write(extra, MTIME, 0);
		(void)octal_write(extra, UID, 0);
		(void)octal_write(extra, GID, 0);
		header_finish(extra, 'x');
		used = TAR_BLOCK + (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
	}
	memcpy(to + used, header, TAR_BLOCK);
	return used + TAR_BLOCK;
}
