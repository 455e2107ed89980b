/* Swaps a file and a directory with a link to another place, as fast as possible for a few
 * seconds, while a client outside uses them through the API. */
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "probe.h"

#define EXCHANGE 2 /* RENAME_EXCHANGE */

static double clock_seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A kernel that cannot exchange two names (gVisor's) gets three renames instead. */
static int swap_names(const char *one, const char *other)
{
	long result = syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, EXCHANGE);
	if (result == 0 || (errno != EINVAL && errno != ENOSYS))
		return (int)result;
	if (rename(one, "spare") < 0 || rename(other, one) < 0)
		return -1;
	return rename("spare", other);
}

/* "/." because gVisor's kernel of 2022 ignores what follows a link to "/". */
int races_swap(const char *directory, const char *target, double duration)
{
	if (chdir(directory) < 0 || mkdir("tree", 0777) < 0 || mkdir("tree/below", 0777) < 0 ||
	    symlink(target, "link") < 0 || symlink("/.", "tree-link") < 0)
		return 1;
	close(open("file", O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
	close(open("tree/below/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
	if (swap_names("file", "link") < 0 || swap_names("tree", "tree-link") < 0)
		return 1;
	printf("swapping\n");
	fflush(stdout);
	for (double end = clock_seconds() + duration; clock_seconds() < end;) {
		for (int i = 0; i < 100; i++) {
			(void)!swap_names("file", "link");
			(void)!swap_names("tree", "tree-link");
		}
	}
	return 0;
}
