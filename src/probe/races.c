/* Swaps a file, and a directory, with a link to somewhere else, as fast as it can and for a few
 * seconds, while somebody outside works on them through the API. */
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "probe.h"

#define EXCHANGE 2 /* RENAME_EXCHANGE */

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int races_swap(const char *directory, const char *target, double duration)
{
	if (chdir(directory) < 0 || mkdir("tree", 0777) < 0 || mkdir("tree/below", 0777) < 0 ||
	    symlink(target, "link") < 0 || symlink("/", "tree-link") < 0)
		return 1;
	close(open("file", O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
	close(open("tree/below/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
	printf("swapping\n");
	fflush(stdout);
	for (double end = seconds() + duration; seconds() < end;) {
		for (int i = 0; i < 100; i++) {
			syscall(SYS_renameat2, AT_FDCWD, "file", AT_FDCWD, "link", EXCHANGE);
			syscall(SYS_renameat2, AT_FDCWD, "tree", AT_FDCWD, "tree-link", EXCHANGE);
		}
	}
	return 0;
}
