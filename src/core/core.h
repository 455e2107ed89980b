/* The domain: sandboxes, execs, files, tokens. Knows neither HTTP nor JSON nor MCP; one libuv loop;
 * never blocks (the store's sub-millisecond calls excepted).
 *
 * Who owns what: a core owns its sandboxes; a sandbox owns its connection to its init, its execs
 * and its file operations. Callers hold borrowed pointers for the length of one call; across loop
 * turns they hold ids, or a watcher/operation that the owner tells of its end.
 *
 * Asynchronous functions return -1 with *error when they refuse at once (then the callback is never
 * called); else 0, and the callback is called exactly once, never from within the function itself.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/config.h"
#include "base/error.h"
#include "base/id.h"
#include "base/list.h"
#include "store/store.h"

struct core_private;
struct spawner_client;
struct work_queue;
struct work_share;

#define WORKSPACE_MAX 63

/* Who asks. Made at the edge from a token or from peer credentials. An operation that is recorded
 * in somebody's name takes it as `principal`; NULL is the daemon itself. */
struct principal {
	char workspace[WORKSPACE_MAX + 1];
	uint32_t scopes;      /* enum scope */
	struct id token;      /* unset: a local peer */
	struct id sandbox;    /* may touch this one only, or unset */
	int64_t expires_wall; /* of the token; 0 = never */
	bool local;           /* over the Unix socket, with these credentials */
	uid_t uid;
	gid_t gid;
};

/* The same, kept by what ends in a later turn. */
struct asker {
	bool set; /* else it is the daemon itself */
	struct principal principal;
};
struct asker asker_of(const struct principal *principal);
const struct principal *asker_principal(const struct asker *asker);

/* What the spawner says that is the main's business. Set in core->hooks before core_start(), which
 * keeps them; any may be NULL. */
struct core_hooks {
	void (*reload)(void *data); /* SPAWN_RELOAD */
	void (*quit)(void *data);   /* SPAWN_QUIT */
	/* The spawner is gone. Everybody who waited has been told, no sandbox is touched any more:
	 * the answers are to be sent, and then the process ends. */
	void (*lost)(void *data);
	/* Start-up cannot be finished (the spawner speaks another version, a broken store). */
	void (*failed)(void *data, const struct error *error);
	void *data;
};

struct core {
	struct core_hooks hooks;
	uv_loop_t *loop;
	struct config config;
	struct store *store;
	struct spawner_client *spawner;
	struct list sandboxes; /* struct sandbox, live ones, newest last */
	uint32_t sandbox_count;
	struct spawn_probe probes[TIER_COUNT];
	uint64_t programs_hash; /* of the init that boots get and of the spawner's program */
	char rootfs_digest[ROOTFS_DIGEST_TEXT]; /* of the layers that boots get */
	struct core_private *private;           /* core_private.h */
	struct work_queue *work;                /* the loop's; made when it is first used */
};

/* Connects the pieces and reconciles rows with what the spawner says exists; `ready` is called when
 * requests may come. spawner_fd is the daemon's end of the socket to the spawner. */
NODISCARD int core_start(struct core *core, uv_loop_t *loop, const struct config *config,
			 int spawner_fd, void (*ready)(void *data), void *data,
			 struct error *error);
/* Ends the daemon's part and leaves every sandbox as it is. Callbacks that are still owed are
 * called with CANCELLED, watchers are told `forgotten`: so it comes before what they point to is
 * freed. The loop must turn once more (uv_run) to close the handles. */
void core_stop(struct core *core);
/* The end is near and cannot wait for those who still wait: each is told, a command's that it goes
 * on, and no sandbox is touched any more. What follows is core_stop(). */
void core_let_go(struct core *core);
/* Until core_stop(): there are sandboxes and rows to ask for. */
bool core_running(const struct core *core);
/* From then on nothing may be begun that a client would wait for: SPAWNER_GONE. */
NODISCARD int core_check_serving(const struct core *core, struct error *error);
/* The end was asked for: what is ready and nobody's is destroyed, then `done` is called, which may
 * be at once. */
void core_end_pool(struct core *core, void (*done)(void *data), void *data);
/* Why the watchers of a sandbox's execs are told `forgotten`. */
void core_forgotten_error(const struct core *core, const struct id *sandbox, struct error *error);
/* New limits and defaults for what is created from now on; directories are not changed. */
void core_configure(struct core *core, const struct config *config);
/* Whose time of the loop it takes to do what they ask (base/work.h): their token's, or their uid's.
 * Counted. */
struct work_share *core_share(struct core *core, const struct principal *principal);
/* The same for what the sandboxes of a workspace send. */
struct work_share *core_share_of_guests(struct core *core, const char *workspace);
/* A key of this installation by its name, exactly `size` bytes: made once and kept for good. */
NODISCARD int core_secret(struct core *core, const char *name, size_t size, uint8_t *ret_value,
			  struct error *error);
/* No live sandbox (paused and stopped ones are live) and nothing under way. */
bool core_idle(const struct core *core);
/* What was written last tells; where that failed it is tried again now and then, so that a store
 * that is well again is so for an idle daemon too. */
bool core_store_works(struct core *core);
