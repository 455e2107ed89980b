/* The one binary: which role this process has. */
#include <string.h>

#include "cli/cli.h"
#include "daemon/daemon.h"

int main(int argc, char **argv)
{
	/* Started by the spawner; not for people. */
	if (argc >= 2 && strcmp(argv[1], "_daemon") == 0)
		return daemon_main(argc - 1, argv + 1);
	return cli_main(argc, argv);
}
