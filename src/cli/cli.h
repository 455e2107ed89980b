/* The command line: a table of verbs, each in a file of its own, each a client of the API. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/client/client.h"
#include "cli/options.h"

/* When started as `opensandbox-mcp`, the program is `caisson mcp --dialect opensandbox`. */
int cli_main(int argc, char **argv);

/* Whether a verb reads the configuration. */
enum configuration {
	CONFIGURATION_LOCAL = 0, /* to find this machine's daemon; not with CAISSON_URL */
	CONFIGURATION_ALWAYS,
	CONFIGURATION_NEVER, /* and does not use the client */
};

struct verb {
	const char *name;
	const char *arguments; /* "[options] SANDBOX -- COMMAND ..." */
	const char *summary;   /* one line */
	const char *help;      /* what it does and examples; options are listed from the table */
	const char *json;      /* what --json does; NULL: it prints the result as JSON */
	const char *words;     /* values of its first argument, for completion: "backup restore" */
	enum configuration configuration;
	bool sandboxes; /* its arguments are sandboxes */
	bool execs;     /* after the sandbox come execs of it */
	const struct option_spec *options;
	bool command_follows; /* the first argument ends the options */
	/* argv[0] is the verb; the options are already removed. Returns the exit code, or -1 with
	 * *error: its message is printed and its kind gives the exit code. */
	int (*run)(struct client *client, int argc, char **argv, struct error *error);
	bool hidden;
};

extern const struct verb verb_attach, verb_jobs;
extern const struct verb verb_run, verb_create, verb_exec, verb_shell, verb_cp, verb_ls, verb_logs,
    verb_stop, verb_start, verb_pause, verb_resume, verb_extend, verb_rm, verb_inspect, verb_top,
    verb_doctor, verb_state, verb_selftest, verb_token, verb_serve, verb_version, verb_completion,
    verb_help, verb_welcome, verb_activity, verb_events, verb_receipt, verb_verify, verb_limits,
    verb_budget, verb_usage, verb_code, verb_sign, verb_set, verb_wait, verb_drain, verb_templates,
    verb_mcp, verb_wrap, verb_man;
/* All verbs, ended by NULL. */
extern const struct verb *const verbs[];

/* Text about the whole program, for --help and the manual. */
extern const char cli_pitch[], cli_overview[];
/* What --json does for a verb whose `json` is NULL. */
#define CLI_JSON_USUAL "what it prints, and errors, as JSON"
/* True when --json was given; every verb has it. */
extern bool cli_json;

void json_print(const json_t *json);
/* Prints one line of JSON. Escapes the control characters that jansson does not escape. */
void json_line_print(FILE *file, const json_t *json, size_t flags);
/* Prints text that came from a sandbox or a user; control characters are escaped. */
void safe_text_print(const char *text);
/* Print a line, on standard output or on standard error; control characters are escaped. */
void line_print(const char *format, ...) PRINTF_LIKE(1, 2);
void error_print(const char *format, ...) PRINTF_LIKE(1, 2);
/* Adds the fields that these options set to a request's body, or to the query of its path. What
 * they may be is the daemon's to check. */
NODISCARD int options_to_body(const struct option_spec *options, json_t *body, struct error *error);
NODISCARD int options_to_path(const struct option_spec *options, struct buffer *path,
			      struct error *error);
/* The unit of a field, as the end of its name has it: "MiB" of memory_mb; NULL: none. */
const char *field_unit(const char *field);
/* The API's errors name fields of a request. Replaces them by the flags of these options. */
void error_name_flags(const struct option_spec *options, struct error *error);
/* The API's errors name options of `caisson create`. Puts this verb's name there if it has the same
 * option. */
void error_name_verb(const struct verb *verb, struct error *error);
/* Appends "/v1/sandboxes/ID" and `rest`, percent-encoded. */
NODISCARD int sandbox_path(struct buffer *path, const char *sandbox, const char *rest,
			   struct error *error);
/* client_call() for that path of a sandbox. */
NODISCARD int client_sandbox_call(struct client *client, const char *method, const char *sandbox,
				  const char *rest, json_t *body, json_t **ret_json,
				  struct error *error);
/* "512 MiB" */
void bytes_to_text(uint64_t bytes, char text[32]);
/* "45s", "3m20s", "1h58m", "3d4h": two units at most. Negative: "-". */
void age_to_text(int64_t seconds, char text[32]);
/* A time from the API as seconds since the epoch; -1 if it is missing. */
int64_t member_time(const json_t *object, const char *name);
const char *member_text(const json_t *object, const char *name);
int64_t member_integer(const json_t *object, const char *name);

/* `words` of several options; those of two are found by the shell. */
#define WORDS_EXECS "$(_caisson_execs)" /* of the sandbox on the command line, else of all */
#define WORDS_TEMPLATES "$(CAISSON_START=no caisson templates 2>/dev/null | awk 'NR>1{print $1}')"
#define WORDS_STATES                                                                               \
	"creating,running,pausing,paused,resuming,stopping,stopped,starting,deleting,ended"

/* The options of a create, and the request that they make. */
#define CREATE_MOUNTS_MAX SANDBOX_MOUNTS_MAX
struct create_options {
	const char *template, *isolation, *name, *memory, *disk, *cpu, *timeout, *idle_timeout,
	    *pids, *wait;
	const char *size, *auto_pause;
	struct text_list environment, metadata, mounts, labels;
	bool nested_userns, allow_substitute, persistent, wake_on_read;
};
extern struct create_options create_options;
/* Those of every verb that creates one; --volume alone. */
extern const struct option_spec create_rows[], volume_rows[];

/* POST /v1/sandboxes with create_options; *ret_json is the new sandbox's record. */
NODISCARD int client_sandbox_create(struct client *client, json_t **ret_json, struct error *error);
NODISCARD int client_sandbox_delete(struct client *client, const char *id, struct error *error);
/* Opens the folders of create_options. Adds them to `body` as "mounts"; *ret_count grants in `fds`
 * must be closed by the caller, also after a failure. */
NODISCARD int create_mounts_open(json_t *body, int fds[CREATE_MOUNTS_MAX], size_t *ret_count,
				 struct error *error);
/* Warns on standard error about limits that were requested and that this host does not enforce. */
void unenforced_limits_warn(const char *verb, const json_t *record);
/* Prints the limits of a record that are not enforced, one line for each reason: the prefix, then
 * "disk, inodes: REASON". */
void unenforced_limits_print(json_t *limits, const char *prefix);
/* Which sandboxes a verb acts on when none is named: --label, --state, --all. */
struct selection {
	struct text_list labels;
	const char *state;
	bool all;
};
/* Performs the action on the selected sandboxes and prints one line for each. */
NODISCARD int selection_apply(struct client *client, const char *verb, const char *action,
			      const struct selection *selection, struct error *error);
/* The object of a list of OPTION_PAIRS, OPTION_ENVIRONMENT or OPTION_CHANGES. */
NODISCARD int pairs_to_json(const struct text_list *list, enum option_kind kind, json_t **ret_json,
			    struct error *error);

/* Where and as whom a command runs. */
extern const struct option_spec place_rows[];
/* The request of an exec, from the command's words and the options of `caisson exec`. */
NODISCARD int exec_body_make(int argc, char **argv, bool tty, json_t **ret_body,
			     struct error *error);

/* An exec whose standard descriptors are connected to ours; see cli/client/exec_session.c. */
struct exec_session {
	const char *sandbox; /* NULL: a new one, which ends with the session; then it is named */
	json_t *body;        /* the request; borrowed */
	const int *fds;      /* grants of the folders that a new one gets */
	size_t fd_count;
	bool tty;
	bool stdin_open;
	const char *fresh; /* the verb that removes the sandbox after the command; NULL: it stays */
	char left[64]; /* set by exec_session_run(): the exec that the user left running, or "" */
	char made[64]; /* and the id of the new sandbox */
};
/* Runs the command. *ret_exit_code is what a shell would report (128 + n for a signal). */
NODISCARD int exec_session_run(struct client *client, struct exec_session *session,
			       int *ret_exit_code, struct error *error);
bool exec_session_wants_tty(void);
