/* Fault points: moments at which a test holds this process, to kill it there, to fill its disk or
 * to delay it. They exist only with -Dfault_points=true, a build for tests; otherwise all of this
 * is empty.
 *
 * Points are not listed one by one. A module with a kind of points (every message, every write to
 * the store) declares a set with FAULT_SET: a prefix, and a function that names each number. That
 * function is a switch over an enum, so that the compiler demands a name for each new value. Each
 * number has two points, before and after. `caisson _fault-points` lists them all. */
#pragma once

#ifdef CAISSON_FAULT_POINTS

#include <stdbool.h>

enum fault_moment { FAULT_BEFORE = 0, FAULT_AFTER = 1 };

struct fault_set {
	const char *prefix;
	const char *(*name)(unsigned number); /* NULL: this number has no point */
	unsigned count;
};

/* The linker collects the sets that are linked. */
#define FAULT_SET(symbol, set_prefix, set_name, set_count)                                         \
	static const struct fault_set symbol = {set_prefix, set_name, set_count};                  \
	static const struct fault_set *const symbol##_listed                                       \
	    __attribute__((used, section("fault_sets"))) = &symbol

void fault_point(const struct fault_set *set, unsigned number, enum fault_moment moment);
/* Called in each iteration of a loop. Tells the test that the last iteration has done everything
 * that was due by the moved clocks. */
enum fault_role { FAULT_DAEMON, FAULT_SPAWNER, FAULT_ROLES };
void fault_turn(enum fault_role role);
/* Prints the names, in the order of their numbers in the shared page. */
int fault_list(void);

#define FAULT(set, number, moment) fault_point(&set, (unsigned)(number), FAULT_##moment)

#else

#define FAULT(set, number, moment) ((void)0)

#endif
