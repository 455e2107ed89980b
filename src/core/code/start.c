/* The two execs of a code context: the interpreter with its driver, and one that only holds the
 * control channel (a pipe whose other end the init reads into a log; the driver opens it through
 * /proc, so that it is neither of the streams that the user's code prints to). Covers the way from
 * the first exec to `ready`, or to the error that says what is missing in the sandbox. Called by
 * code.c and cells.c; waits through watchers. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/text.h"
#include "core/code/code_private.h"
#include "core/exec/foreground.h"
#include "core/account/access.h"

/* The control channel is lossless. Its ring has room for the results of one cell, which are read
 * from it when the cell has ended. Where the ring is made smaller (exec_logs_fit()), the driver is
 * told how much that may be. A third is left for errors, for the heads of records, and for what is
 * read but not acknowledged (exec_acknowledge()). */
#define CONTROL_HEAD (64 * KIB)
#define CONTROL_TAIL ((uint64_t)CODE_RESULT_BYTES_MAX / 2 * 3)
#define ARGUMENTS_MAX 3
#define STDERR_SHOWN 300
#define TITLE_LINE_MAX 160
#define TITLE_SIZE (TITLE_LINE_MAX + 32)
#define NOT_FOUND_CODE 127 /* a shell's exit code for a missing program */

struct language {
	const char *name, *program;
	const char *aliases; /* ",a,b," */
	const char *driver;
	const char *argv[ARGUMENTS_MAX]; /* with CAISSON_DRIVER in the environment */
	const char *open, *cell;         /* the verbs of its requests */
	bool results;                    /* its cells have some */
	bool plain_once; /* one piece of code needs no driver: it is sent on standard input */
};

static const struct language languages[] = {
    [CODE_PYTHON] = {.name = "python",
		     .program = "python3",
		     .aliases = ",py,python3,",
		     .driver = code_driver_python,
		     .argv = {"python3", "-uc",
			      "import os; exec(compile(os.environ.pop('CAISSON_DRIVER'), "
			      "'<caisson>', 'exec'))"},
		     .open = "open",
		     .cell = "cell",
		     .results = true},
    [CODE_NODE] = {.name = "node",
		   .program = "node",
		   .aliases = ",js,javascript,nodejs,",
		   .driver = code_driver_node,
		   .argv = {"sh", "-c",
			    "exec 3<&0 </dev/null; CAISSON_REQUESTS=3 exec node -e "
			    "'eval(process.env.CAISSON_DRIVER)'"},
		   .open = "open",
		   .cell = "cell",
		   .results = true},
    [CODE_BASH] = {.name = "bash",
		   .program = "bash",
		   .aliases = ",sh,shell,",
		   .driver = code_driver_bash,
		   .argv = {"bash", "-c",
			    "exec 61>&2 2>/dev/null; exec bash --noediting --noprofile --rcfile "
			    "<(printf %s \"$CAISSON_DRIVER\") -i"},
		   .open = "__caisson_open",
		   .cell = "__caisson_cell",
		   .plain_once = true},
};

/* Reads all of the code before it runs any, so that its commands find an empty standard input. */
static const char *const bash_once[] = {"bash", "-c", "IFS= read -r -d ''; eval \"$REPLY\""};

static const struct language *language_of(uint32_t number)
{
	return &languages[number >= 1 && number <= CODE_LANGUAGE_COUNT ? number : CODE_PYTHON];
}

enum code_language code_language_parse(const char *name)
{
	char wanted[24];
	if (strpbrk(name, ",") || text_format(wanted, sizeof(wanted), ",%s,", name) < 0)
		return 0;
	for (size_t i = 1; i <= CODE_LANGUAGE_COUNT; i++)
		if (strcasecmp(languages[i].name, name) == 0 ||
		    strcasestr(languages[i].aliases, wanted))
			return (enum code_language)i;
	return 0;
}

const char *code_language_name(uint32_t language)
{
	return language_of(language)->name;
}

const char *code_language_program(uint32_t language)
{
	return language_of(language)->program;
}

const char *code_cell_verb(uint32_t language)
{
	return language_of(language)->cell;
}

/* --- starting --- */

static int control_start(struct code_context *context, struct error *error)
{
	static const char *const argv[] = {"cat"};
	bool results = language_of(context->row.language)->results;
	struct exec_spec spec = {
	    .argv = argv,
	    .argc = 1,
	    .user = context->row.user,
	    .cwd = "/",
	    .flags = EXEC_STDIN | EXEC_LOSSLESS,
	    .head = CONTROL_HEAD,
	    .tail = results ? CONTROL_TAIL : CODE_CHANNEL_LEAST,
	    .principal = code_principal(context),
	    .context = &context->row.id,
	};
	struct exec *exec;
	if (exec_start(context->sandbox, &spec, &exec, error) < 0)
		return -1;
	context->row.control = exec->row.id;
	exec->idle = true;
	exec_watch(exec, &context->life->control);
	return 0;
}

/* "python: import os": for a person who looks for a job, the driver's command line says nothing. */
static void interpreter_make_title(const struct code_context *context, const struct code_spec *code,
				   char title[TITLE_SIZE])
{
	const char *text = code->code ? code->code : "";
	const char *end = text + (code->code ? code->size : 0), *line = text;
	while (line < end && (unsigned char)*line <= ' ')
		line++;
	const char *newline = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;
	size_t size = MIN((size_t)((newline ? newline : end) - line), (size_t)TITLE_LINE_MAX);
	snprintf(title, TITLE_SIZE, "%s%s%s%.*s", code_language_name(context->row.language),
		 context->once ? "" : " context", size > 0 ? ": " : "",
		 (int)text_utf8_prefix(line, size), line);
}

static int main_start(struct code_context *context, const struct code_spec *code,
		      struct error *error)
{
	const struct language *language = language_of(context->row.language);
	bool plain = context->life->plain;
	char title[TITLE_SIZE];
	struct pair *environment = calloc(code->environment_count + 2, sizeof(*environment));
	size_t count = code->environment_count;
	if (!environment)
		abort();
	if (count > 0)
		memcpy(environment, code->environment, count * sizeof(*environment));
	if (!plain)
		environment[count++] = (struct pair){"CAISSON_DRIVER", language->driver};
	if (!plain && context->once)
		environment[count++] = (struct pair){"CAISSON_ONCE", "1"};
	struct exec_spec spec = {
	    .argv = plain ? bash_once : language->argv,
	    .argc = ARGUMENTS_MAX,
	    .environment = environment,
	    .environment_count = count,
	    .cwd = context->row.cwd,
	    .user = context->row.user,
	    .flags = EXEC_STDIN,
	    .timeout_ms = context->once ? code->timeout_ms : 0,
	    .principal = code_principal(context),
	    .context = &context->row.id,
	    .title = title,
	};
	struct exec *exec;
	interpreter_make_title(context, code, title);
	int result = exec_start(context->sandbox, &spec, &exec, error);
	free(environment);
	if (result < 0)
		return -1;
	context->row.exec = exec->row.id;
	exec->idle = true;
	exec_watch(exec, &context->life->main);
	return 0;
}

bool code_plain(const struct code_context *context)
{
	return context->once && language_of(context->row.language)->plain_once;
}

int code_interpreter_start(struct code_context *context, const struct code_spec *spec,
			   struct error *error)
{
	struct code_life *life = context->life;
	life->plain = code_plain(context);
	life->opened = life->ready = life->finished = life->end_told = life->cut = life->resumed =
	    false;
	life->control_at = 0;
	life->sent = 0;
	buffer_clear(&life->outgoing);
	if (main_start(context, spec, error) < 0)
		return -1;
	if (life->plain)
		return 0;
	if (control_start(context, error) < 0) {
		code_interpreter_stop(context);
		return -1;
	}
	return 0;
}

static void interpreter_stop_exec(struct exec_watcher *watcher)
{
	struct exec *exec = watcher->exec;
	if (!exec)
		return;
	exec_unwatch(watcher);
	if (!exec_ended(exec))
		exec_cancel(exec, NULL);
}

void code_interpreter_stop(struct code_context *context)
{
	interpreter_stop_exec(&context->life->main);
	interpreter_stop_exec(&context->life->control);
}

/* --- its standard input --- */

void code_feed(struct code_context *context)
{
	struct code_life *life = context->life;
	struct exec *exec = life->main.exec;
	struct error error;
	if (!exec || exec_ended(exec) || life->plain || !life->opened)
		return;
	if (life->cut && life->sent == 0) {
		/* Ends a line that may be incomplete. */
		if (exec_stdin(exec, "\n", 1, &error) != 1)
			return;
		life->cut = false;
	}
	if (life->sent >= life->outgoing.size)
		return;
	ssize_t taken = exec_stdin(exec, life->outgoing.data + life->sent,
				   life->outgoing.size - life->sent, &error);
	if (taken > 0)
		life->sent += (size_t)taken;
}

static void control_open(struct code_context *context)
{
	struct code_life *life = context->life;
	struct exec *control = life->control.exec, *exec = life->main.exec;
	if (life->opened || !control || control->pid == 0 || !exec ||
	    exec->row.state != EXEC_RUNNING)
		return;
	const struct language *language = language_of(context->row.language);
	char most[24] = "";
	if (language->results && control->row.tail < CONTROL_TAIL)
		snprintf(most, sizeof(most), " %llu",
			 (unsigned long long)(control->row.tail / 3 * 2));
	/* Sent before all waiting data. */
	DONE_BUFFER struct buffer line = BUFFER(64 + 3 * CODE_SOURCE_MAX + 256);
	if (buffer_printf(&line, "%s %u%s\n", language->open, control->pid, most) < 0 ||
	    (life->outgoing.size > 0 &&
	     buffer_append(&line, life->outgoing.data, life->outgoing.size) < 0))
		abort(); /* its maximum is sufficient */
	buffer_done(&life->outgoing);
	life->outgoing = line;
	line = BUFFER(0);
	life->sent = 0;
	life->opened = true;
	code_feed(context);
}

/* --- what becomes of it --- */

void code_end_reason(const struct exec *exec, char *text, size_t room)
{
	const struct exec_row *row = &exec->row;
	const char *name = sigabbrev_np((int)row->code);
	int length = 0;
	if (state_facts(exec->sandbox->row.state)->wakes == WAKES_BY_START)
		length = snprintf(text, room, "the sandbox was stopped");
	else if (row->state == EXEC_FAILED)
		length = snprintf(text, room, "its interpreter could not be started: %s",
				  row->error_message ? row->error_message : "nobody knows why");
	else if (row->oom_killed)
		length =
		    snprintf(text, room, "it was killed because the sandbox ran out of memory");
	else if (row->end == EXEC_END_EXITED)
		length = snprintf(text, room, "its interpreter exited with code %u", row->code);
	else if (row->end == EXEC_END_LOST)
		length = snprintf(text, room, "%s",
				  row->error_message ? row->error_message : "nobody knows why");
	else if (row->end == EXEC_END_TIMED_OUT)
		length = snprintf(text, room, "its time-out has passed");
	else if (row->end == EXEC_END_TOO_MANY_PROCESSES)
		length = snprintf(text, room, "%s", EXEC_TOO_MANY_PROCESSES);
	else
		length =
		    snprintf(text, room, "its interpreter was killed by SIG%s", name ? name : "?");
	if (length >= (int)room)
		text[text_utf8_prefix(text, room - 1)] = '\0';
}

/* A single piece of code that was killed or timed out has ended normally. */
static bool interpreter_failed_to_start(const struct code_context *context, const struct exec *exec)
{
	if (!context->once)
		return context->life->created;
	return exec->row.state == EXEC_FAILED ||
	       (!context->life->plain && exec->row.end == EXEC_END_EXITED);
}

void code_interpreter_ended(struct code_context *context)
{
	struct exec *exec = context->life->main.exec;
	char reason[256];
	/* Data that arrives at the channel later leads here again. */
	if (!exec || context->life->end_told)
		return;
	context->life->end_told = true;
	if (!context->life->ready && interpreter_failed_to_start(context, exec)) {
		code_start_failed(context, exec);
		return;
	}
	code_end_reason(exec, reason, sizeof(reason));
	code_context_ended(context, reason);
}

static void main_settled(struct code_context *context)
{
	struct code_life *life = context->life;
	struct exec *exec = life->main.exec, *control = life->control.exec;
	/* The context may have been restarted meanwhile. */
	if (!exec || !exec_ended(exec) || life->finished)
		return;
	life->finished = true;
	if (!control) {
		code_interpreter_ended(context);
		return;
	}
	/* What others write there from now on is not waited for. */
	exec_logs_refresh(control);
	life->control_end = exec_total(control, EXEC_STDOUT);
	code_read_records(context);
}

static void main_changed(struct exec_watcher *watcher, struct exec *exec)
{
	struct code_context *context = container_of(watcher, struct code_life, main)->context;
	if (exec_ended(exec)) {
		code_settle(context, main_settled);
		return;
	}
	control_open(context);
	code_feed(context);
	/* Only once: a failing store would be tried at every line of output. */
	if (context->running_cell && id_is_set(&context->running_cell->cell) &&
	    !context->running_cell->keep_tried)
		foreground_cell_keep(context);
	foreground_cell_changed(context);
}

static void control_settled(struct code_context *context)
{
	const struct exec *exec = context->life->control.exec, *main = context->life->main.exec;
	/* If both end, the interpreter's end gives the reason. */
	if (!exec || !exec_ended(exec) || !main || exec_ended(main) ||
	    !state_facts(context->sandbox->row.state)->may_exec)
		return;
	code_broken(context, exec->row.state == EXEC_FAILED
				 ? "the sandbox has no `cat` to hold it"
				 : "the process that holds it was ended");
}

static void control_changed(struct exec_watcher *watcher, struct exec *exec)
{
	struct code_context *context = container_of(watcher, struct code_life, control)->context;
	if (exec_ended(exec)) {
		code_settle(context, control_settled);
		return;
	}
	control_open(context);
	code_read_records(context);
}

static void main_forgotten(struct exec_watcher *watcher)
{
	code_context_ended(container_of(watcher, struct code_life, main)->context,
			   "the record of its interpreter was removed");
}

static void control_forgotten(struct exec_watcher *watcher)
{
	code_context_ended(container_of(watcher, struct code_life, control)->context,
			   "the record of its control channel was removed");
}

const struct exec_watcher code_main_watcher = {
    .changed = main_changed,
    .forgotten = main_forgotten,
};
const struct exec_watcher code_control_watcher = {
    .changed = control_changed,
    .forgotten = control_forgotten,
    .consumes = true,
    .only = EXEC_STDOUT,
};

/* --- a language that is not there --- */

struct language_search {
	struct core *core;
	struct id context;
	struct error error;
};

static void context_create_failed(struct core *core, const struct id *id, const struct error *error)
{
	struct code_context *context = code_context_by_id(core, id);
	if (!context)
		return;
	context->life->start_error = *error;
	code_context_ended(context, error->message);
}

static void languages_listed(void *data, struct exec *exec, const struct left_process *left,
			     size_t count, const struct error *failure)
{
	struct language_search *looking = data;
	char names[256] = "";
	uint64_t gap;
	(void)left;
	(void)count;
	ssize_t size =
	    exec && !failure ? exec_read(exec, EXEC_STDOUT, 0, names, sizeof(names) - 1, &gap) : 0;
	names[MAX(size, 0)] = '\0';
	for (char *at = names; *at; at++)
		if ((*at < 'a' || *at > 'z') && *at != ' ')
			*at = ' ';
	size_t length = strlen(names);
	while (length > 0 && names[length - 1] == ' ')
		names[--length] = '\0';
	struct error error = looking->error;
	error_set(&error, ERROR_LANGUAGE_UNAVAILABLE, "%s; languages that are there: %s",
		  looking->error.message, length > 0 ? names : "none");
	context_create_failed(looking->core, &looking->context, &error);
	free(looking);
}

/* Finds the available languages, for the text of the refusal. */
static void languages_look_for(struct code_context *context, const struct error *error)
{
	static const char *const argv[] = {"sh", "-c",
					   "command -v python3 >/dev/null && echo python; command "
					   "-v node >/dev/null && echo node; "
					   "command -v bash >/dev/null && echo bash; :"};
	static const struct foreground_callbacks callbacks = {.done = languages_listed};
	struct exec_spec spec = {
	    .argv = argv, .argc = 3, .timeout_ms = 5000, .context = &context->row.id};
	struct language_search *looking = calloc(1, sizeof(*looking));
	struct foreground *foreground;
	struct error ignored;
	if (!looking)
		abort();
	*looking = (struct language_search){context->sandbox->core, context->row.id, *error};
	if (foreground_start(context->sandbox, &spec, NULL, 0, &callbacks, looking, &foreground,
			     &ignored) < 0) {
		context_create_failed(looking->core, &looking->context, error);
		free(looking);
	}
}

/* The first bytes of its error output, as one line. */
static void exec_first_words(struct exec *exec, char *text, size_t room)
{
	uint64_t gap;
	ssize_t size = exec_read(exec, EXEC_STDERR, 0, text, room - 1, &gap);
	size_t length = size > 0 ? text_utf8_prefix(text, (size_t)size) : 0;
	text[length] = '\0';
	if (!text_is_utf8(text, length))
		text[0] = '\0';
	for (char *at = text; *at; at++)
		if ((unsigned char)*at < 0x20)
			*at = ' ';
}

void code_start_failed(struct code_context *context, struct exec *exec)
{
	const struct exec_row *row = &exec->row;
	const char *program = code_language_program(context->row.language);
	struct error error;
	char words[STDERR_SHOWN] = "";
	bool missing = row->state == EXEC_FAILED
			   ? row->error_kind == ERROR_PROGRAM_NOT_FOUND
			   : row->end == EXEC_END_EXITED && row->code == NOT_FOUND_CODE;
	if (missing) {
		error_set(&error, ERROR_LANGUAGE_UNAVAILABLE,
			  "the sandbox has no `%s`, which runs %s code", program,
			  code_language_name(context->row.language));
		languages_look_for(context, &error);
		return;
	}
	if (row->state == EXEC_FAILED) {
		exec_start_error(exec, &error);
	} else {
		exec_first_words(exec, words, sizeof(words));
		code_end_reason(exec, error.message, sizeof(error.message));
		char reason[ERROR_MESSAGE_MAX];
		snprintf(reason, sizeof(reason), "%s", error.message);
		error_set(&error, ERROR_CONTEXT_ENDED, "%s before it was ready%s%s", reason,
			  words[0] ? ": " : "", words);
	}
	context->life->start_error = error;
	code_context_ended(context, error.message);
}
