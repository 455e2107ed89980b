/* See progress.h. Called by `cp` and by backup and restore of the state. Only writing to the
 * terminal may block. */
#include "cli/client/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"

#define FIRST_AFTER (500 * NSEC_PER_MSEC)
#define EVERY (200 * NSEC_PER_MSEC)
#define BAR 20

void progress_begin(struct progress *progress, const char *verb, uint64_t total)
{
	*progress = (struct progress){.verb = verb,
				      .total = total,
				      .began = clock_monotonic(),
				      .terminal = isatty(STDERR_FILENO) == 1 && !cli_json};
}

int progress_line(const struct progress *progress, int64_t took, int columns, char text[128])
{
	char done[32], total[32], rate[32], bar[BAR + 1] = "";
	double seconds = (double)MAX(took, NSEC_PER_MSEC) / (double)NSEC_PER_SEC;
	bytes_to_text(progress->done, done);
	bytes_to_text(progress->total, total);
	bytes_to_text((uint64_t)((double)progress->done / seconds), rate);
	int length;
	if (progress->total == 0) {
		length = snprintf(text, 128, "%s %s, %s/s", progress->verb, done, rate);
	} else {
		/* A file may have grown since its size was read. */
		double part = MIN((double)progress->done / (double)progress->total, 1.0);
		memset(bar, '#', (size_t)(part * BAR));
		length = snprintf(text, 128, "%s [%-*s] %3d%% %s of %s, %s/s", progress->verb, BAR,
				  bar, (int)(part * 100), done, total, rate);
	}
	/* A line that wraps could not be erased. */
	length = MIN(length, MIN(127, columns - 1));
	text[length] = '\0';
	return length;
}

void progress_add(struct progress *progress, uint64_t bytes)
{
	progress->done += bytes;
	int64_t now = clock_monotonic();
	if (!progress->terminal || now - progress->began < FIRST_AFTER ||
	    now - progress->shown_at < EVERY || progress->done == progress->total)
		return;
	char text[128];
	struct winsize size;
	bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
	int length = progress_line(progress, now - progress->began, known ? size.ws_col : 80, text);
	fprintf(stderr, "\r%-*s", progress->width, text);
	progress->shown_at = now;
	progress->width = length;
}

void progress_clear(struct progress *progress)
{
	if (progress->width > 0)
		fprintf(stderr, "\r%*s\r", progress->width, "");
	progress->width = 0;
}
