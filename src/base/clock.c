/* The three clocks, and the text form of wall-clock time. */
#include "base/clock.h"

#include <time.h>

static int64_t clock_read(clockid_t id)
{
	struct timespec time;
	clock_gettime(id, &time);
	return (int64_t)time.tv_sec * NSEC_PER_SEC + time.tv_nsec;
}

int64_t clock_boot(void)
{
	return clock_read(CLOCK_BOOTTIME);
}

int64_t clock_monotonic(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

int64_t clock_wall(void)
{
	return clock_read(CLOCK_REALTIME);
}

/* Converts days since 1970 to a Gregorian date. Years begin in March, so that the leap day is
 * the last day of a year. */
static void days_to_date(int64_t days, unsigned *ret_year, unsigned *ret_month, unsigned *ret_day)
{
	uint32_t since = (uint32_t)(days + 719468);          /* 0000-03-01 */
	uint32_t era = since / 146097, day = since % 146097; /* of 400 years */
	uint32_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
	day -= 365 * year + year / 4 - year / 100;
	uint32_t month = (5 * day + 2) / 153;
	*ret_day = day - (153 * month + 2) / 5 + 1;
	*ret_month = month < 10 ? month + 3 : month - 9;
	*ret_year = era * 400 + year + (month >= 10);
}

static char *text_put_digits(char *to, unsigned value, size_t count)
{
	for (size_t i = count; i-- > 0; value /= 10)
		to[i] = (char)('0' + value % 10);
	return to + count;
}

/* Formatted by hand: a record has four of them, and strftime() takes a microsecond each. */
void clock_text(int64_t wall, char text[CLOCK_TEXT_SIZE])
{
	int64_t seconds = wall / NSEC_PER_SEC, day = seconds / 86400;
	unsigned second = (unsigned)(seconds % 86400), year, month, month_day;
	days_to_date(day, &year, &month, &month_day);
	char *end = text_put_digits(text, year, 4);
	*end++ = '-';
	end = text_put_digits(end, month, 2);
	*end++ = '-';
	end = text_put_digits(end, month_day, 2);
	*end++ = 'T';
	end = text_put_digits(end, second / 3600, 2);
	*end++ = ':';
	end = text_put_digits(end, second / 60 % 60, 2);
	*end++ = ':';
	end = text_put_digits(end, second % 60, 2);
	*end++ = '.';
	end = text_put_digits(end, (unsigned)(wall % NSEC_PER_SEC / NSEC_PER_MSEC), 3);
	*end++ = 'Z';
	*end = '\0';
}
