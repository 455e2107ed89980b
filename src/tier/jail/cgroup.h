/* The cgroups of a sandbox, version 1 and 2 behind one face: <instance>/<id>/{init,work} in every
 * hierarchy that has a controller we use, and without root below the cgroup that we are in
 * ourselves, where it is ours to write. PID 1 is in init; all that a user runs is in work, which
 * carries the limits and the freezer, so that a pause, a quota or an out-of-memory kill never hits
 * the protocol. No state: everything is found again by name.
 *
 * Called in the spawner. A first attach after idle can block for 15 ms,
 * removing for as long as it says, all else for microseconds; what goes through the processes of a
 * sandbox, for a few milliseconds where there are thousands. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "tier/guest.h"

#define CGROUP_HIERARCHIES_MAX 8
/* Processes of ours that live in work and do not count as the sandbox's: launcher, spare runner,
 * and the runners of a few execs. */
#define CGROUP_PIDS_RESERVE 16

/* Descriptors that a boot needs; owned, -1 when unset. */
struct cgroup_boot {
	/* cgroup.procs of init and of work, write-only, one per hierarchy. Who writes "0" moves
	 * itself; the kernel looks at the rights of whoever opened them. */
	int init_procs[CGROUP_HIERARCHIES_MAX];
	int work_procs[CGROUP_HIERARCHIES_MAX];
	uint32_t count;
	int init_directory; /* version 2: for CLONE_INTO_CGROUP, and init_procs[0] is not needed */
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

/* Makes the cgroups and sets the limits. reasons[]: what is enforced, and why not (cpu, memory,
 * pids). A host without any cgroup is no error. */
NODISCARD int cgroup_make(const struct host *host, const struct id *id, const struct limits *limits,
			  uint32_t reasons[LIMIT_COUNT], struct cgroup_boot *ret_boot,
			  struct error *error);
/* Lets the sandbox's own root, `owner`, into work: without root the kernel would not. */
NODISCARD int cgroup_let_root_join(const struct host *host, uid_t owner, struct cgroup_boot *boot,
				   struct error *error);
NODISCARD int cgroup_set_limits(const struct host *host, const struct id *id,
				const struct limits *limits, struct error *error);
/* Which limits hold: asks the cgroups that are there. */
void cgroup_reasons(const struct host *host, const struct id *id, uint32_t reasons[LIMIT_COUNT]);
/* All of work stops, or goes on. 1: it has been told, and does not yet. */
NODISCARD int cgroup_freeze(const struct host *host, const struct id *id, bool frozen,
			    struct error *error);
bool cgroup_is_frozen(const struct host *host, const struct id *id);
/* Neither frozen nor told to freeze. */
bool cgroup_is_thawed(const struct host *host, const struct id *id);
/* What they count, and have counted after the end of all that was in them. Keeps a few descriptors
 * until the cgroups are removed. */
void cgroup_counters(const struct host *host, const struct guest *guest,
		     struct spawn_counters *counters);
void cgroup_counters_forget(const struct id *id);
/* Memory goes back to the host as far as nothing is lost. Blocks: for a worker. */
NODISCARD int cgroup_reclaim(const struct host *host, struct guest *guest,
			     struct spawn_reclaimed *ret_reclaimed, struct error *error);
/* What work holds above its limit (cgroup_memory_limit.c), as jail.h has it: memory_events_open,
 * memory_events_read, memory_limit_enforce.
 */
NODISCARD int cgroup_memory_events_open(const struct host *host, const struct guest *guest);
NODISCARD int cgroup_memory_events_read(const struct host *host, const struct guest *guest,
					int events);
NODISCARD int cgroup_memory_limit_enforce(const struct host *host, struct guest *guest,
					  struct error *error);
/* The work cgroup in the hierarchy that has a controller (enum controller); *ret_unified its
 * version. Owned by the caller; -errno. */
NODISCARD int cgroup_open_work(const struct host *host, const struct id *id, uint32_t controller,
			       bool *ret_unified);
/* The first number in a file, or after `key` at the start of a line. -1 when it is not there. */
int64_t cgroup_read_number(int directory, const char *name, const char *key);
/* SIGKILL to whatever is in them, frozen or not; does not wait for their end. */
void cgroup_kill(const struct host *host, const struct id *id);
/* The same of what a freezer holds, in one hierarchy: for one whose PID 1 is killed too, which is
 * the end of all others. */
void cgroup_kill_frozen(const struct host *host, const struct id *id);
bool cgroup_is_empty(const struct host *host, const struct id *id);
/* Calls back for every thread in init and work. */
void cgroup_each_thread(const struct host *host, const struct id *id,
			void (*each)(pid_t thread, const void *data), const void *data);
/* Is the process in our cgroup of that id, in every hierarchy we use? */
bool cgroup_holds_process(const struct host *host, const struct id *id, pid_t pid);
/* rmdir; -EBUSY when processes are still leaving after `timeout_ms`. Missing ones are fine. */
NODISCARD int cgroup_remove(const struct host *host, const struct id *id, int timeout_ms);
/* Ends and removes the cgroups of this instance whose id is not known, and its own directories when
 * nothing is left in them. 0, or the first -errno. */
NODISCARD int cgroup_sweep(const struct host *host, bool (*known)(void *data, const struct id *id),
			   void *data, int timeout_ms);
