/* clock_gettime() plus the time that a test has added. time() and what the kernel times by
 * itself (sleeps, poll() with a time-out, other processes) are not affected. */
#include "base/clock_advance.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static uint64_t advance_none;
uint64_t *clock_advance = &advance_none;

int clock_gettime(clockid_t id, struct timespec *time)
{
	int result = (int)syscall(SYS_clock_gettime, id, time);
	if (result < 0 || id == CLOCK_PROCESS_CPUTIME_ID || id == CLOCK_THREAD_CPUTIME_ID)
		return result;
	int64_t advance = (int64_t)__atomic_load_n(clock_advance, __ATOMIC_SEQ_CST);
	int64_t nanoseconds = time->tv_nsec + advance % NSEC_PER_SEC;
	time->tv_sec += advance / NSEC_PER_SEC + nanoseconds / NSEC_PER_SEC;
	time->tv_nsec = nanoseconds % NSEC_PER_SEC;
	return 0;
}
