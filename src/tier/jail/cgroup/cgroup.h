/* The cgroups of a sandbox, with one interface for versions 1 and 2: <instance>/<id>/{init,work} in
 * every hierarchy that has a controller we use. Without root they are below our own cgroup, if it
 * is writable. PID 1 is in init. Everything that a user runs is in work, which carries the limits
 * and the freezer, so that a pause, a quota or an out-of-memory kill never stops the protocol.
 * There is no state: cgroups are found again by name.
 *
 * Called in the spawner. The first attach after idle can block for 15 ms, and cgroup_remove() for
 * its time-out. Everything else takes microseconds, or a few milliseconds where it visits
 * thousands of processes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "tier/guest.h"

#define CGROUP_HIERARCHIES_MAX 8
/* Our own processes that live in work and are not counted as the sandbox's: launcher, spare
 * runner, and the runners of a few execs. */
#define CGROUP_PIDS_RESERVE 16

/* Descriptors that a boot needs; owned, -1 when unset. */
struct cgroup_boot {
	/* cgroup.procs of init and of work, write-only, one per hierarchy. Writing "0" moves the
	 * writer; the kernel checks the rights of the opener. */
	int init_procs[CGROUP_HIERARCHIES_MAX];
	int work_procs[CGROUP_HIERARCHIES_MAX];
	uint32_t count;
	int init_directory; /* version 2: for CLONE_INTO_CGROUP; init_procs[0] is not used then */
	int memory_usage, memory_limit, memory_stat;
	int process_events; /* pids.events of work */
};

#define CGROUP_BOOT_NONE                                                                           \
	((struct cgroup_boot){.init_directory = -1,                                                \
			      .memory_usage = -1,                                                  \
			      .memory_limit = -1,                                                  \
			      .memory_stat = -1,                                                   \
			      .process_events = -1})
void cgroup_boot_done(struct cgroup_boot *boot);

/* Makes the cgroups and sets the limits. reasons[]: which limits are enforced, and why not (cpu,
 * memory, pids). A host without cgroups is not an error. */
NODISCARD int cgroup_make(const struct host *host, const struct id *id, const struct limits *limits,
			  uint32_t reasons[LIMIT_COUNT], struct cgroup_boot *ret_boot,
			  struct error *error);
/* Allows the sandbox's root (`owner`) to join work, which the kernel would refuse without root. */
NODISCARD int cgroup_let_root_join(const struct host *host, uid_t owner, struct cgroup_boot *boot,
				   struct error *error);
NODISCARD int cgroup_set_limits(const struct host *host, const struct id *id,
				const struct limits *limits, struct error *error);
/* Which limits are enforced, according to the existing cgroups. */
void cgroup_reasons(const struct host *host, const struct id *id, uint32_t reasons[LIMIT_COUNT]);
/* Freezes or thaws all of work. 1: begun, not done yet. */
NODISCARD int cgroup_freeze(const struct host *host, const struct id *id, bool frozen,
			    struct error *error);
bool cgroup_is_frozen(const struct host *host, const struct id *id);
/* Neither frozen nor told to freeze. */
bool cgroup_is_thawed(const struct host *host, const struct id *id);
/* Reads the counters, also after all processes have ended. Caches a few descriptors until the
 * cgroups are removed. */
void cgroup_counters(const struct host *host, const struct guest *guest,
		     struct spawn_counters *counters);
void cgroup_counters_forget(const struct id *id);
/* Reclaims memory without losing data. Blocks: for a worker. */
NODISCARD int cgroup_reclaim(const struct host *host, struct guest *guest,
			     struct spawn_reclaimed *ret_reclaimed, struct error *error);
/* Memory of work above its limit (cgroup_memory_limit.c): the functions of struct jail. */
NODISCARD int cgroup_memory_events_open(const struct host *host, const struct guest *guest);
NODISCARD int cgroup_memory_events_read(const struct host *host, const struct guest *guest,
					int events);
NODISCARD int cgroup_memory_limit_enforce(const struct host *host, struct guest *guest,
					  struct error *error);
/* Opens the work cgroup in the hierarchy that has a controller (enum controller); *ret_unified:
 * version 2. The caller owns it; -errno. */
NODISCARD int cgroup_open_work(const struct host *host, const struct id *id, uint32_t controller,
			       bool *ret_unified);
/* The first number in a file, or the one after `key` at the start of a line. -1: missing. */
int64_t cgroup_read_number(int directory, const char *name, const char *key);
/* Sends SIGKILL to all processes in the cgroups, frozen or not; does not wait. */
void cgroup_kill(const struct host *host, const struct id *id);
/* The same for frozen processes in one hierarchy: enough when PID 1 is killed too, which ends
 * all others. */
void cgroup_kill_frozen(const struct host *host, const struct id *id);
bool cgroup_is_empty(const struct host *host, const struct id *id);
/* Calls `each` for every thread in init and work. */
void cgroup_each_thread(const struct host *host, const struct id *id,
			void (*each)(pid_t thread, const void *data), const void *data);
/* Whether the process is in the init cgroup of that id, in every hierarchy we use. */
bool cgroup_holds_process(const struct host *host, const struct id *id, pid_t pid);
/* Removes the cgroups; -EBUSY when processes are still ending after `timeout_ms`. Missing ones
 * are fine. */
NODISCARD int cgroup_remove(const struct host *host, const struct id *id, int timeout_ms);
/* Kills and removes the cgroups of this instance whose id is not known, and the instance's own
 * directories when they are empty. 0, or the first -errno. */
NODISCARD int cgroup_sweep(const struct host *host, bool (*known)(void *data, const struct id *id),
			   void *data, int timeout_ms);
