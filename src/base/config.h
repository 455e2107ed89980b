/* Configuration: built-in defaults < file < environment < flags. Used by the spawner, the daemon
 * and the command line alike, so that they find each other.
 *
 * The file is /etc/caisson/caisson.conf (root) or $XDG_CONFIG_HOME/caisson/caisson.conf, or the one
 * that --config or CAISSON_CONFIG names. An unknown section or key is an error with its line
 * number. The environment: CAISSON_LISTEN, CAISSON_STATE, CAISSON_RUNTIME, CAISSON_CONFIG,
 * CAISSON_LOG. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/log.h"
#include "base/resources.h"

/* The default user of the daemon, if it exists. */
#define CONFIG_USER_DEFAULT "caisson"
#define CONFIG_LISTEN_DEFAULT "127.0.0.1:7878"
/* Names of secrets. Behind them, with a '!', names that contain such a word but hold no secret: a
 * file, a number, a kind. */
#define CONFIG_REDACT_DEFAULT                                                                      \
	"TOKEN *TOKEN API-TOKENS AUTH-TOKENS ACCESS-TOKENS *SECRET* *PASSWORD* *PASSWD* "          \
	"*PASSPHRASE* *CREDENTIAL* COOKIE *COOKIE COOKIES *-KEY API-KEY API.KEY API-KEYS "         \
	"ACCESS-KEY ACCESS.KEY *APIKEY *ACCESSKEY *PRIVATEKEY ?KEY *-PASS *-PWD PASS= --PASS "     \
	"!*-FILE !*-PATH !*-DIR !*-NAME !*-TYPE !*-COUNT !*-LIMIT !*-LENGTH !*-SIZE !*-BUDGET "    \
	"!*-TTL !*-TIMEOUT !*-STDIN !TOKEN-ID !TOKEN-URL !NO-* !MAX !MIN !NUM !EOS !BOS !PAD "     \
	"!PUBLIC !PRIMARY !FOREIGN !SORT !PARTITION !OLD-PWD"

#define CONFIG_MCP_BLOCK_DEFAULT 50

struct config {
	/* [server] */
	char listen[256]; /* "HOST:PORT"; "none" for the Unix socket only. Default 127.0.0.1:7878 */
	char state[256];  /* /var/lib/caisson, or $XDG_STATE_HOME/caisson */
	char runtime[256]; /* /run/caisson, or $XDG_RUNTIME_DIR/caisson */
	char user[64];     /* the daemon's user when started by root; "": CONFIG_USER_DEFAULT */
	char tls_certificate[256], tls_key[256];
	/* Names that a Host header may use besides the listener's own, and origins
	 * ("https://host[:port]") whose pages may call it; separated by spaces or commas. */
	char hosts[1024], origins[1024];
	uint32_t idle_exit_seconds; /* 0 = never; set by a client that starts the daemon */
	enum log_level log_level;
	bool log_level_fixed; /* set by a flag or the environment: a reload does not change it */
	bool log_json;
	bool metrics_open; /* /metrics needs no token */
	/* [sandbox] defaults and maxima for a create */
	struct limits defaults, maximum;
	uint32_t files_cap; /* without root: maximum of a sandbox's open files; 0: none */
	uint32_t timeout_seconds, timeout_seconds_max;
	uint32_t idle_timeout_seconds;
	uint32_t auto_pause_seconds; /* pause after this idle time; 0 = never */
	uint64_t output_head, output_tail;
	uint64_t output_max;    /* maximum of the two together, for a client that chooses its own */
	uint64_t log_bytes_max; /* output of one sandbox, of running and ended execs */
	uint32_t sandboxes_max;
	uint32_t tombstone_days;
	/* [budget] of a workspace without one of its own; 0 = none */
	struct budget_defaults {
		uint64_t sandboxes, cpu_millis, memory, disk; /* concurrent */
		/* per minute, day, month */
		uint64_t creates[3], execs[3], wall_seconds[3], cpu_seconds[3];
	} budget;
	uint32_t queue_max; /* creates of one workspace that may wait */
	/* [host] what is reserved for the host itself (0: a share of it), and how many times its
	 * RAM the memory limits of all sandboxes may add up to (0: any) */
	uint64_t memory_reserve, disk_reserve;
	uint32_t memory_overcommit;
	/* [usage] */
	uint32_t usage_interval_seconds; /* how often usage is counted */
	uint32_t usage_days;             /* how long it is kept; 0 = for ever */
	/* [pool] number of sandboxes made ahead: at least (0: none), and at most under load.
	 * Read by the spawner. */
	uint32_t pool_size, pool_max;
	/* [templates] substitute: `host` replaces known templates that are not installed. */
	bool templates_substitute;
	/* [activity] how long and how many entries of each sandbox are kept (0: no bound), names
	 * whose values are not recorded, and whether file reads are. */
	uint32_t activity_days, activity_entries;
	char activity_redact[1024];
	bool activity_reads;
	/* [mcp] how long a tool call waits for a command before it becomes a job: clients
	 * abandon a call after a minute. */
	uint32_t mcp_block_seconds;
	/* [mounts] allow = paths below which folders may be given, separated by ':'; "" = any
	 * folder that the calling user can open. Read by the spawner, from a root-owned file. */
	char mounts_allow[1024];
};

/* The directories are root's, or the user's own: state in $XDG_STATE_HOME/caisson or
 * ~/.local/state/caisson; sockets in $XDG_RUNTIME_DIR/caisson, /run/user/UID/caisson if that
 * belongs to the user, <state>/run if its path is short enough for a socket, else
 * /tmp/caisson-UID. */
void config_defaults(struct config *config);
/* The path of the file; explicit: --config, or NULL. Reads the environment. */
NODISCARD int config_path(const char *explicit_path, char *path, size_t room);
/* A missing file is fine unless it was named explicitly. */
NODISCARD int config_read_file(struct config *config, const char *path, bool must_exist,
			       struct error *error);
NODISCARD int config_read_environment(struct config *config, struct error *error);
/* Checks that directories are absolute, listen is well-formed, defaults are within maxima. */
NODISCARD int config_check(const struct config *config, struct error *error);
/* Splits "HOST:PORT" or "[V6]:PORT"; HOST is a numeric address or "localhost". "none" is
 * -ENOENT. */
#define CONFIG_HOST_MAX 64
NODISCARD int config_split_listen(const char *listen, char host[CONFIG_HOST_MAX],
				  uint16_t *ret_port);
/* Returns whether the user is the host's root, and its uid on the host. A spawner without root
 * is uid 0 of a user namespace of its own, and the daemon may be too. */
bool config_user_is_root(unsigned *ret_uid);
/* <runtime>/caisson.sock */
NODISCARD int config_socket_path(const struct config *config, char *path, size_t room);
