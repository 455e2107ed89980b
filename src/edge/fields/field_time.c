/* FIELD_TIME: a time as text (fields.h). Pure, but for an age, which counts from now. */
#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "edge/fields/fields.h"

#define SECONDS_MAX (253402300800LL) /* the year 10000 */
#define SECONDS_KEPT (9000000000LL)  /* a later one becomes this: its nanoseconds fit */

/* A date, alone or with the time of day and its zone. */
static int date_parse(const char *text, int64_t *ret_wall)
{
	struct tm parts = {0};
	int64_t fraction = 0, unit = NSEC_PER_SEC;
	const char *rest = strptime(text, "%Y-%m-%d", &parts);
	if (rest && *rest == 'T') {
		rest = strptime(rest + 1, "%H:%M:%S", &parts);
		if (rest && *rest == '.')
			for (rest++; *rest >= '0' && *rest <= '9'; rest++)
				fraction += (*rest - '0') * (unit /= 10);
		if (rest)
			rest = *rest == 'z' ? rest + 1 : strptime(rest, "%z", &parts);
	}
	if (!rest || *rest)
		return -EINVAL;
	int64_t offset = parts.tm_gmtoff, seconds = (int64_t)timegm(&parts) - offset;
	*ret_wall = MAX(MIN(seconds, SECONDS_KEPT), 0) * NSEC_PER_SEC + fraction;
	return 0;
}

int field_time_parse(const char *text, int64_t *ret_wall)
{
	uint64_t seconds;
	int64_t wall;
	if (text_to_u64(text, 0, SECONDS_MAX - 1, &seconds) == 0)
		wall = MIN((int64_t)seconds, SECONDS_KEPT) * NSEC_PER_SEC;
	else if (text_to_seconds(text, &seconds) == 0 && seconds < SECONDS_MAX)
		wall = clock_wall() - MIN((int64_t)seconds, SECONDS_KEPT) * NSEC_PER_SEC;
	else if (date_parse(text, &wall) < 0)
		return -EINVAL;
	*ret_wall = MAX(wall, 1);
	return 0;
}
