/* The domain: sandboxes, execs, files, tokens. Knows neither HTTP nor JSON nor MCP; one libuv loop;
 * never blocks (the store's sub-millisecond calls excepted).
 *
 * Who owns what: a core owns its sandboxes; a sandbox owns its connection to its init, its execs
 * and its file operations. Callers hold borrowed pointers for the length of one call; across loop
 * turns they hold ids, or a watcher or operation that the owner notifies of the end.
 *
 * Asynchronous functions return -1 with *error when they refuse at once (then the callback is never
 * called); else 0, and the callback is called exactly once, never from within the function
 * itself. */
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

/* The caller of an operation, made at the edge from a token or from peer credentials. A recorded
 * operation takes its caller as `principal`; NULL is the daemon itself. */
struct principal {
	char workspace[WORKSPACE_MAX + 1];
	uint32_t scopes;      /* enum scope */
	struct id token;      /* unset: a local peer */
	struct id sandbox;    /* it may only access this sandbox, or unset */
	int64_t expires_wall; /* of the token; 0 = never */
	bool local;           /* over the Unix socket, with these credentials */
	uid_t uid;
	gid_t gid;
};

/* The caller, kept by operations that end in a later turn. */
struct kept_principal {
	bool set; /* false: the daemon itself */
	struct principal principal;
};
struct kept_principal principal_keep(const struct principal *principal);
const struct principal *kept_principal_get(const struct kept_principal *caller);

/* Notices of the spawner that main handles. Set in core->hooks before core_start(), which keeps
 * them; any may be NULL. */
struct core_hooks {
	void (*reload)(void *data); /* SPAWN_RELOAD */
	void (*quit)(void *data);   /* SPAWN_QUIT */
	/* The spawner has exited. All waiting requests have their answers, and no sandbox is
	 * changed any more: main sends the answers, and then ends the process. */
	void (*lost)(void *data);
	/* Start-up failed (the spawner speaks another version, the store is broken). */
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
	uint64_t programs_hash; /* of the init for new boots and of the spawner's program */
	char host_digest[ROOTFS_DIGEST_TEXT]; /* today's layers of ROOTFS_HOST */
	struct core_private *private;         /* core_private.h */
	struct work_queue *work;              /* the loop's; made at first use */
};

/* Connects the parts and reconciles the rows with the sandboxes that the spawner reports; `ready`
 * is called when requests may come. spawner_fd is the daemon's end of the socket to the spawner. */
NODISCARD int core_start(struct core *core, uv_loop_t *loop, const struct config *config,
			 int spawner_fd, void (*ready)(void *data), void *data,
			 struct error *error);
/* Ends the daemon's part and leaves every sandbox unchanged. Pending callbacks are called with
 * CANCELLED, and watchers' `forgotten` is called: so call this before their data is freed. The loop
 * must turn once more (uv_run) to close the handles. */
void core_stop(struct core *core);
/* The daemon must end without waiting for requests: each waiting request is answered (a command's:
 * that it continues), and no sandbox is changed any more. core_stop() follows. */
void core_let_go(struct core *core);
/* Until core_stop(): there are sandboxes and rows to ask for. */
bool core_running(const struct core *core);
/* SPAWNER_GONE after core_let_go(): then nothing may begin for which a client would wait. */
NODISCARD int core_check_serving(const struct core *core, struct error *error);
/* The daemon was told to end: destroys the pool, then calls `done`, possibly at once. */
void core_end_pool(struct core *core, void (*done)(void *data), void *data);
/* The reason for the `forgotten` calls of the watchers of a sandbox's execs. */
void core_forgotten_error(const struct core *core, const struct id *sandbox, struct error *error);
/* New limits and defaults for objects that are created from now on; directories do not change. */
void core_configure(struct core *core, const struct config *config);
/* The share of the loop's time that is charged for the caller's requests (base/work.h): that of its
 * token, or of its uid. Counted. */
struct work_share *core_share(struct core *core, const struct principal *principal);
/* The same for data from the sandboxes of a workspace. */
struct work_share *core_share_of_guests(struct core *core, const char *workspace);
/* A key of this installation by its name, exactly `size` bytes: made once and kept forever. */
NODISCARD int core_secret(struct core *core, const char *name, size_t size, uint8_t *ret_value,
			  struct error *error);
/* True if there is no live sandbox (paused and stopped ones are live) and nothing is under way. */
bool core_idle(const struct core *core);
/* Did the last write succeed? If it failed, another write is tried from time to time, so that an
 * idle daemon also notices a recovered store. */
bool core_store_works(struct core *core);
