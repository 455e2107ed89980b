/* See ready_logs.h. Called by start.c, by the create of a sandbox and by the pool. */
#include "core/exec/ready_logs.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "core/core_private.h"

void ready_logs_done(struct ready_logs *ready)
{
	for (int i = 0; ready->made && i < 2; i++)
		fd_close(&ready->logs[i].fd);
	ready->made = false;
}

static int ready_log_make(struct core *core, const char *path, struct output_log *ret_log)
{
	const struct config *config = &core->config;
	CLOSE_FD int fd = spare_take(core, path);
	if (fd < 0)
		return fd;
	int result = output_log_format(fd, config->output_head, config->output_tail);
	if (result == 0)
		result = output_log_open(fd, ret_log);
	if (result < 0)
		return result;
	ret_log->fd = TAKE_FD(fd);
	return 0;
}

void ready_logs_make(struct core *core, const struct id *sandbox, struct ready_logs *ready)
{
	int logs_fd = core->private->logs_fd, made = 0;
	char paths[2][LOG_PATH_MAX];
	if (ready->made || core->private->spares.count < 2 ||
	    core->config.output_head + core->config.output_tail == 0 ||
	    (mkdirat(logs_fd, sandbox->text, 0700) < 0 && errno != EEXIST))
		return;
	ready->exec = id_new();
	for (int i = 0; i < 2; i++)
		log_path(sandbox, &ready->exec, i, paths[i]);
	while (made < 2 && ready_log_make(core, paths[made], &ready->logs[made]) == 0)
		made++;
	ready->made = made == 2;
	spares_fill(core);
	if (ready->made)
		return;
	for (int i = 0; i < 2; i++)
		unlinkat(logs_fd, paths[i], 0);
	if (made > 0)
		fd_close(&ready->logs[0].fd);
}

/* With the retention of this exec. */
static int ready_log_fit(struct output_log *log, const struct exec_row *row)
{
	if (log->head == row->head && log->tail == row->tail)
		return 0;
	int result = output_log_format(log->fd, row->head, row->tail);
	return result < 0 ? result : output_log_open(log->fd, log);
}

bool ready_logs_take(struct ready_logs *ready, struct exec *exec)
{
	for (int i = 0; i < 2; i++)
		if (!ready->made || ready_log_fit(&ready->logs[i], &exec->row) < 0)
			return false;
	exec->row.id = ready->exec;
	exec->logs[0] = ready->logs[0];
	exec->logs[1] = ready->logs[1];
	ready->made = false;
	return true;
}
