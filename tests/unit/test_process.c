/* Processes by pid, pidfd and start time (base/process.h). */
#include "base/process.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

TEST_MAIN

/* As a killed spawner whose worker has not ended yet. */
TEST(a_process_has_ended_though_its_session_lives)
{
	struct process process = PROCESS_NONE;
	int end[2];
	char byte = 0;
	CHECK_INT(pipe(end), 0);
	pid_t leader = fork();
	if (leader == 0) {
		setsid();
		if (fork() == 0) {
			close(end[1]);
			(void)!read(end[0], &byte, 1);
		}
		_exit(0);
	}
	close(end[0]);
	CHECK_INT(waitpid(leader, NULL, 0), leader);
	CHECK_INT(process_open(leader, 0, &process), -ESRCH);
	close(end[1]);
}

TEST(a_process_of_another_start_time_is_another)
{
	struct process process = PROCESS_NONE;
	uint64_t start_time = 0;
	CHECK_INT(process_start_time(getpid(), &start_time), 0);
	CHECK_INT(process_open(getpid(), start_time + 1, &process), -ESRCH);
	CHECK_INT(process_open(getpid(), start_time, &process), 0);
	CHECK(process_alive(&process));
	process_done(&process);
}
