/* Fault points: moments at which a test holds this process still, to kill it there, to fill its
 * disk or to make it late. They exist only in a build with -Dfault_points=true, which is for tests
 * alone; in any other all of this is empty.
 *
 * The points are not written down one by one. Whoever has a kind of them (every message, every
 * write to the store) declares a set with FAULT_SET: its prefix, and a function that names each
 * number, a switch over an enum, so that the compiler asks for the name of what is new. Each number
 * of a set is two points, before and after. `caisson _fault-points` lists them all. */
#pragma once

#ifdef CAISSON_FAULT_POINTS

#include <stdbool.h>

enum fault_moment { FAULT_BEFORE = 0, FAULT_AFTER = 1 };

struct fault_set {
	const char *prefix;
	const char *(*name)(unsigned number); /* NULL: no point has that number */
	unsigned count;
};

/* The linker collects them: the list is what is linked. */
#define FAULT_SET(symbol, set_prefix, set_name, set_count)                                         \
	static const struct fault_set symbol = {set_prefix, set_name, set_count};                  \
	static const struct fault_set *const symbol##_listed                                       \
	    __attribute__((used, section("fault_sets"))) = &symbol

void fault_point(const struct fault_set *set, unsigned number, enum fault_moment moment);
/* Called at each turn of a loop: tells the test that all is done that was due at the last turn by
 * the time it had moved the clocks to. */
enum fault_role { FAULT_DAEMON, FAULT_SPAWNER, FAULT_ROLES };
void fault_turn(enum fault_role role);
/* Prints the names, in the order of their numbers in the page that a test shares with us. */
int fault_list(void);

#define FAULT(set, number, moment) fault_point(&set, (unsigned)(number), FAULT_##moment)

#else

#define FAULT(set, number, moment) ((void)0)

#endif
