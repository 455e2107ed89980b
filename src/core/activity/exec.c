/* The entries of an exec: started, ended, failed; with the SHA-256 of its output if that is known.
 * Called by core/exec/exec.c and core/exec/frames.c.
 *
 * The end is written with the exec's row in one transaction, after the waiting requests were
 * answered. A short output is hashed at once; a longer one in a thread, and row and entry wait for
 * it. Until then the init keeps the result, so that it can report it again if the daemon dies
 * meanwhile. Output that is not completely kept has no digest.
 *
 * The execs of a code context have no entries: their code has its own (core/code/code.c,
 * core/code/cells.c). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/loop_threads.h"
#include "base/text.h"
#include "core/core_private.h"
#include "store/activity.h"

#define INLINE_MAX (64 * KIB)
#define PIECE (256 * KIB)

void activity_exec_started(struct exec *exec, const struct principal *principal,
			   const struct exec_spec *spec)
{
	char timeout[24];
	DONE_BUFFER struct buffer command = BUFFER(ACTIVITY_VALUE_MAX + 64);
	if (id_is_set(&exec->row.context))
		return;
	activity_redact_command(exec->sandbox->core->config.activity_redact, spec->argv, spec->argc,
				&command);
	snprintf(timeout, sizeof(timeout), "%u", exec->row.timeout_ms);
	ACTIVITY(exec->sandbox, ACTIVITY_EXEC_STARTED, principal, &exec->row.id,
		 {"command", buffer_text(&command)}, {"cwd", spec->cwd}, {"user", spec->user},
		 {"tty", exec->row.flags & EXEC_TTY ? "yes" : NULL},
		 {"timeout_ms", exec->row.timeout_ms ? timeout : NULL});
}

void activity_exec_loaded(struct exec *exec)
{
	struct error error;
	struct id sandbox;
	uint64_t number;
	if (exec_ended(exec) || id_is_set(&exec->row.context))
		return;
	int known = store_activity_started(exec->sandbox->core->store, &exec->row.id, &sandbox,
					   &number, &error);
	if (known < 0)
		log_warning("exec %s: %s", exec->row.id.text, error.message);
	if (known != 0)
		return;
	DONE_BUFFER struct buffer command = BUFFER(ACTIVITY_VALUE_MAX + 64);
	activity_redact_joined(exec->sandbox->core->config.activity_redact, exec->row.command,
			       &command);
	char actor[ACTIVITY_ACTOR_MAX] = "system";
	if (id_is_set(&exec->row.token))
		snprintf(actor, sizeof(actor), "token:%s", exec->row.token.text);
	const struct detail details[] = {
	    {"command", buffer_text(&command)},
	    {"recorded", "after a restart of the daemon"},
	};
	activity_record_by(exec->sandbox, ACTIVITY_EXEC_STARTED, actor, &exec->row.id, details,
			   ARRAY_SIZE(details));
}

/* --- the end --- */

static void exec_record_failed(struct exec *exec)
{
	const struct detail details[] = {
	    {"code", error_info((enum error_kind)exec->row.error_kind)->code},
	    {"error", exec->row.error_message},
	};
	activity_record_by(exec->sandbox, ACTIVITY_EXEC_FAILED, "system", &exec->row.id, details,
			   ARRAY_SIZE(details));
}

void activity_exec_ended(struct exec *exec)
{
	const struct exec_row *row = &exec->row;
	char code[16], out[24], err[24], out_digest[65], err_digest[65], wall[24], cpu[24],
	    left[16];
	if (id_is_set(&row->context))
		return;
	if (row->state == EXEC_FAILED) {
		exec_record_failed(exec);
		return;
	}
	bool lost = row->end == EXEC_END_LOST, exited = row->end == EXEC_END_EXITED;
	snprintf(code, sizeof(code), "%u", row->code);
	snprintf(out, sizeof(out), "%" PRIu64, row->out_total);
	snprintf(err, sizeof(err), "%" PRIu64, row->err_total);
	snprintf(wall, sizeof(wall), "%" PRIu64, row->wall_ns / 1000);
	snprintf(cpu, sizeof(cpu), "%" PRIu64, row->cpu_ns / 1000);
	snprintf(left, sizeof(left), "%u", row->left_running);
	text_hex(exec->digests[0].sha256, 32, out_digest);
	text_hex(exec->digests[1].sha256, 32, err_digest);
	const struct detail details[] = {
	    {"outcome", exec_end_facts(row->end)->name},
	    {"exit_code", exited ? code : NULL},
	    {"signal", !lost && !exited ? code : NULL},
	    {"oom_killed", row->oom_killed ? "yes" : NULL},
	    {"stdout_bytes", out},
	    {"stdout_sha256", exec->digests[0].known ? out_digest : NULL},
	    {"stderr_bytes", err},
	    {"stderr_sha256", exec->digests[1].known ? err_digest : NULL},
	    {"duration_us", wall},
	    {"cpu_us", cpu},
	    {"left_running", row->left_running ? left : NULL},
	};
	activity_record_by(exec->sandbox, ACTIVITY_EXEC_ENDED, "system", &row->id, details,
			   ARRAY_SIZE(details));
}

/* --- digests --- */

/* One stream of an ended exec: its length, and a separate log to read it from. */
struct digest_stream {
	struct output_log log; /* its descriptor is owned here; -1: do not hash */
	uint64_t size;
};

struct digest_work {
	struct loop_job job;
	struct core *core;
	struct id sandbox;
	uint64_t key;
	struct digest_stream streams[2];
	struct exec_digest digests[2];
};

/* May be called in a thread: accesses only its arguments. */
static void stream_hash(struct digest_stream *stream, char *piece, size_t room,
			struct exec_digest *ret_digest)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	uint64_t at = 0, gap = 0;
	unsigned size = 0;
	bool good = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
	while (good && at < stream->size) {
		ssize_t got = output_log_read(&stream->log, at, piece,
					      (size_t)MIN(stream->size - at, room), &gap);
		good = got > 0 && gap == 0 && EVP_DigestUpdate(context, piece, (size_t)got) == 1;
		at += good ? (uint64_t)got : 0;
	}
	ret_digest->known = good && EVP_DigestFinal_ex(context, ret_digest->sha256, &size) == 1;
	EVP_MD_CTX_free(context);
}

static void exec_hash_free(struct digest_work *work)
{
	fd_close(&work->streams[0].log.fd);
	fd_close(&work->streams[1].log.fd);
	free(work);
}

static void exec_hash_work(struct loop_job *job)
{
	struct digest_work *work = container_of(job, struct digest_work, job);
	char *piece = malloc(PIECE);
	if (!piece)
		abort();
	for (int i = 0; i < 2; i++)
		if (work->streams[i].log.fd >= 0)
			stream_hash(&work->streams[i], piece, PIECE, &work->digests[i]);
	free(piece);
}

static void exec_hash_after(struct loop_job *job)
{
	struct digest_work *work = container_of(job, struct digest_work, job);
	struct sandbox *sandbox =
	    work->core->private ? sandbox_by_id(work->core, &work->sandbox) : NULL;
	struct exec *exec = sandbox ? exec_by_key(sandbox, work->key) : NULL;
	if (exec && exec->written == EXEC_HASHING) {
		memcpy(exec->digests, work->digests, sizeof(exec->digests));
		exec_save_end(exec);
		exec_trim(sandbox);
	}
	exec_hash_free(work);
}

/* In a thread, which gets copies of the streams, and of the digests that are known already. */
static void exec_hash_in_thread(struct exec *exec, const struct digest_stream *streams,
				const struct exec_digest *digests)
{
	struct digest_work *work = calloc(1, sizeof(*work));
	if (!work)
		abort();
	work->job = (struct loop_job){.in_thread = exec_hash_work, .done = exec_hash_after};
	work->core = exec->sandbox->core;
	work->sandbox = exec->sandbox->row.id;
	work->key = exec->row.key;
	memcpy(work->streams, streams, sizeof(work->streams));
	memcpy(work->digests, digests, sizeof(work->digests));
	for (int i = 0; i < 2; i++)
		if (streams[i].log.fd >= 0)
			work->streams[i].log.fd = fcntl(streams[i].log.fd, F_DUPFD_CLOEXEC, 3);
	loop_job_run(work->core->loop, &work->job);
}

bool exec_digest_begin(struct exec *exec)
{
	struct digest_stream streams[2] = {0};
	struct exec_digest digests[2] = {0};
	const uint64_t sizes[2] = {exec->row.out_total, exec->row.err_total};
	char piece[4096];
	bool large = false;
	/* For a lost exec it is unknown whether all its output has arrived. */
	if (exec->row.state != EXEC_ENDED || exec->row.end == EXEC_END_LOST ||
	    id_is_set(&exec->row.context))
		return false;
	for (int i = 0; i < 2; i++) {
		streams[i].size = sizes[i];
		streams[i].log.fd = -1;
		/* Is all of it kept? Processes that the command left running may continue to write:
		 * only the output up to its end counts. */
		bool none = i == 1 && exec->row.flags & EXEC_TTY;
		if (none || (sizes[i] > 0 && (sizes[i] > exec->row.head + exec->row.tail ||
					      exec_logs_open(exec) < 0 || exec->logs[i].fd < 0)))
			continue;
		if (sizes[i] > 0)
			streams[i].log = exec->logs[i];
		if (sizes[i] <= INLINE_MAX)
			stream_hash(&streams[i], piece, sizeof(piece), &digests[i]);
		else
			large = true;
		if (digests[i].known)
			streams[i].log.fd = -1;
	}
	if (large) {
		exec_hash_in_thread(exec, streams, digests);
		exec->written = EXEC_HASHING;
		return true;
	}
	memcpy(exec->digests, digests, sizeof(exec->digests));
	return false;
}

void exec_digest_give_up(struct exec *exec)
{
	if (exec->written == EXEC_HASHING)
		exec_save_end(exec);
}
