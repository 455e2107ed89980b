/* The one binary: which role this process has. */
#include <string.h>
#include <sys/prctl.h>

#include "cli/cli.h"
#include "daemon/daemon.h"

int main(int argc, char **argv)
{
	/* We are started as /proc/self/exe too, which would be our name in `ps`. */
	prctl(PR_SET_NAME, "caisson");
	/* Started by the spawner; not for people. */
	if (argc >= 2 && strcmp(argv[1], "_daemon") == 0)
		return daemon_main(argc - 1, argv + 1);
	return cli_main(argc, argv);
}
