/* Values of one word. See toml_scalar.h. */
#include "cli/toml_scalar.h"

#include <stdbool.h>
#include <string.h>

#include "base/macros.h"
#include "base/text.h"

#define DIGITS "0123456789"

/* Digits of that alphabet with single underscores between them. */
static size_t grouped(const char *text, const char *alphabet)
{
	size_t size = strspn(text, alphabet);
	while (size > 0 && text[size] == '_' && strspn(text + size + 1, alphabet) > 0)
		size += 1 + strspn(text + size + 1, alphabet);
	return size;
}

static size_t number(const char *text)
{
	static const struct {
		const char *head, *alphabet;
	} bases[] = {{"0x", DIGITS "abcdefABCDEF"}, {"0o", "01234567"}, {"0b", "01"}};
	for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
		if (!text_starts(text, bases[i].head))
			continue;
		size_t digits = grouped(text + 2, bases[i].alphabet);
		return digits ? 2 + digits : 0;
	}
	size_t sign = text[0] == '+' || text[0] == '-';
	if (text_starts(text + sign, "inf") || text_starts(text + sign, "nan"))
		return sign + 3;
	size_t whole = grouped(text + sign, DIGITS);
	if (whole == 0 || (whole > 1 && text[sign] == '0'))
		return 0;
	size_t size = sign + whole;
	if (text[size] == '.') {
		size_t part = grouped(text + size + 1, DIGITS);
		if (part == 0)
			return 0;
		size += 1 + part;
	}
	if (text[size] == 'e' || text[size] == 'E') {
		size_t power = 1 + (text[size + 1] == '+' || text[size + 1] == '-');
		size_t part = grouped(text + size + power, DIGITS);
		if (part == 0)
			return 0;
		size += power + part;
	}
	return size;
}

/* Two digits up to `most`; -1: there are none. */
static int two(const char *text, int most)
{
	if (strspn(text, DIGITS) < 2)
		return -1;
	int value = (text[0] - '0') * 10 + text[1] - '0';
	return value <= most ? value : -1;
}

/* 2026-02-28, a day that there is. */
static size_t date(const char *text)
{
	static const int days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	if (strspn(text, DIGITS) != 4 || text[4] != '-')
		return 0;
	int month = two(text + 5, 12);
	if (month < 1 || text[7] != '-')
		return 0;
	int day = two(text + 8, days[month - 1]);
	int century = two(text, 99), year = two(text + 2, 99);
	bool leap = year % 4 == 0 && (year != 0 || century % 4 == 0);
	if (day < 1 || (month == 2 && day == 29 && !leap) || century + year == 0)
		return 0;
	return 10;
}

/* 07:32:00.999 */
static size_t time_of_day(const char *text)
{
	if (two(text, 23) < 0 || text[2] != ':' || two(text + 3, 59) < 0 || text[5] != ':' ||
	    two(text + 6, 59) < 0)
		return 0;
	if (text[8] != '.')
		return 8;
	size_t digits = strspn(text + 9, DIGITS);
	return digits ? 9 + digits : 0;
}

static size_t offset(const char *text)
{
	if (text[0] == 'Z' || text[0] == 'z')
		return 1;
	if (text[0] != '+' && text[0] != '-')
		return 0;
	return two(text + 1, 23) >= 0 && text[3] == ':' && two(text + 4, 59) >= 0 ? 6 : 0;
}

size_t toml_scalar(const char *text)
{
	if (text_starts(text, "true"))
		return 4;
	if (text_starts(text, "false"))
		return 5;
	size_t size = strspn(text, DIGITS);
	if (size == 2 && text[2] == ':')
		return time_of_day(text);
	if (size != 4 || text[4] != '-')
		return number(text);
	size = date(text);
	if (size == 0)
		return 0;
	/* A blank and no time: the date alone, and a blank. */
	size_t time = strchr("Tt ", text[size]) && text[size] ? time_of_day(text + size + 1) : 0;
	if (time == 0)
		return text[size] == 'T' || text[size] == 't' ? 0 : size;
	size += 1 + time;
	return size + offset(text + size);
}
