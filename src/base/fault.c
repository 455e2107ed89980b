/* Fault points (fault.h). A test makes a file, names it in CAISSON_FAULTS, and shares it as memory
 * with the spawner and the daemon. Through it the test arms a point, sees which process is held
 * there, lets it continue, and moves the clocks. It is mapped before main(), because at a point the
 * daemon must neither open a file nor send a signal.
 *
 * Built only with -Dfault_points=true. Called at each point; blocks when the test says so. */
#include "base/fault.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/clock_advance.h"
#include "base/macros.h"

#define FAULT_POINTS_MAX 2000
/* A test that died must not hold a process for ever. */
#define FAULT_HELD_MAX (120 * NSEC_PER_SEC)

enum fault_action { ACTION_HOLD = 1, ACTION_DELAY = 2 };

/* tests/lib/faults.py has the same layout. */
struct fault_page {
	uint32_t armed; /* 1 + the point's number; 0: none. Cleared by the process that reaches
			 * it */
	uint32_t skip;  /* how many hits pass first */
	uint32_t action;
	uint32_t milliseconds; /* ACTION_DELAY */
	uint32_t held;         /* pid of the process that is held */
	uint32_t go_on;        /* ACTION_HOLD: held until the test sets this */
	uint64_t advance;      /* clock_advance.h; never decreases */
	uint64_t acknowledged[FAULT_ROLES];
	uint32_t reserved[12];
	uint32_t hits[FAULT_POINTS_MAX];
};

extern const struct fault_set *const __start_fault_sets[] __attribute__((weak));
extern const struct fault_set *const __stop_fault_sets[] __attribute__((weak));

static struct fault_page *fault_page;

__attribute__((constructor)) static void map_page(void)
{
	const char *path = getenv("CAISSON_FAULTS");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *memory = mmap(NULL, sizeof(*fault_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	fault_page = memory == MAP_FAILED ? NULL : memory;
	if (fault_page)
		clock_advance = &fault_page->advance;
}

/* Sets follow each other in the linker's order; each number has two points. */
static unsigned point_number(const struct fault_set *set, unsigned number, enum fault_moment moment)
{
	unsigned first = 0;
	for (const struct fault_set *const *other = __start_fault_sets; *other != set; other++)
		first += 2 * (*other)->count;
	return first + 2 * number + (unsigned)moment;
}

int fault_list(void)
{
	static const char *const moments[] = {"before", "after"};
	for (const struct fault_set *const *set = __start_fault_sets; set < __stop_fault_sets;
	     set++)
		for (unsigned number = 0; number < (*set)->count; number++)
			for (unsigned moment = FAULT_BEFORE; moment <= FAULT_AFTER; moment++) {
				const char *name = (*set)->name(number);
				unsigned place =
				    point_number(*set, number, (enum fault_moment)moment);
				if (place >= FAULT_POINTS_MAX)
					abort();
				if (name)
					printf("%u %s.%s:%s\n", place, (*set)->prefix, name,
					       moments[moment]);
			}
	return 0;
}

static void sleep_briefly(long nanoseconds)
{
	nanosleep(&(struct timespec){.tv_sec = nanoseconds / NSEC_PER_SEC,
				     .tv_nsec = nanoseconds % NSEC_PER_SEC},
		  NULL);
}

/* Time that the test has moved does not release a held process. */
static int64_t clock_unmoved(void)
{
	return clock_monotonic() - (int64_t)__atomic_load_n(&fault_page->advance, __ATOMIC_SEQ_CST);
}

void fault_turn(enum fault_role role)
{
	static uint64_t seen;
	if (!fault_page)
		return;
	__atomic_store_n(&fault_page->acknowledged[role], seen, __ATOMIC_SEQ_CST);
	seen = __atomic_load_n(&fault_page->advance, __ATOMIC_SEQ_CST);
}

static void point_hold(void)
{
	int64_t until = clock_unmoved() + FAULT_HELD_MAX;
	uint32_t action = fault_page->action;
	__atomic_store_n(&fault_page->held, (uint32_t)getpid(), __ATOMIC_SEQ_CST);
	if (action == ACTION_DELAY)
		sleep_briefly((long)fault_page->milliseconds * NSEC_PER_MSEC);
	else
		while (!__atomic_load_n(&fault_page->go_on, __ATOMIC_SEQ_CST) &&
		       clock_unmoved() < until)
			sleep_briefly(NSEC_PER_MSEC / 4);
	__atomic_store_n(&fault_page->held, 0, __ATOMIC_SEQ_CST);
}

void fault_point(const struct fault_set *set, unsigned number, enum fault_moment moment)
{
	if (!fault_page || number >= set->count || !set->name(number))
		return;
	unsigned place = point_number(set, number, moment);
	if (place >= FAULT_POINTS_MAX)
		abort();
	uint32_t mine = place + 1;
	__atomic_fetch_add(&fault_page->hits[place], 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&fault_page->armed, __ATOMIC_SEQ_CST) != mine)
		return;
	if (fault_page->skip > 0) {
		fault_page->skip--;
		return;
	}
	if (__atomic_compare_exchange_n(&fault_page->armed, &mine, 0, false, __ATOMIC_SEQ_CST,
					__ATOMIC_SEQ_CST))
		point_hold();
}
