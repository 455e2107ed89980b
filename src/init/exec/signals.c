/* Signal dispositions. Called once per process at its start; never blocks. */
#include "init/exec/signals.h"

#include <signal.h>
#include <stddef.h>

#include "base/macros.h"

static const int ignored_signals[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE, SIGALRM, SIGTERM,
				      SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU};

static void signals_unblock(void)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

void signals_reset(void)
{
	for (int number = 1; number <= 64; number++)
		signal(number, SIG_DFL);
	/* Writing to a process that has ended is an error to report, not a reason to end. */
	signal(SIGPIPE, SIG_IGN);
	signals_unblock();
}

void signals_ignore(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(ignored_signals); i++)
		signal(ignored_signals[i], SIG_IGN);
	signals_unblock();
}

void signals_default(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(ignored_signals); i++)
		signal(ignored_signals[i], SIG_DFL);
	signals_unblock();
}
