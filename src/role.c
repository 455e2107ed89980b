/* Which role a process of the one binary has. See role.h. */
#include "role.h"

#include <string.h>
#include <sys/prctl.h>

#include "base/fault.h"
#include "cli/cli.h"
#include "daemon/daemon.h"
#include "tier/gvisor/shim.h"

int role_main(int argc, char **argv)
{
	/* We are started as /proc/self/exe too, which would be our name in `ps`. */
	prctl(PR_SET_NAME, "caisson");
	/* Started by the spawner; not for people. */
	if (argc >= 2 && strcmp(argv[1], "_daemon") == 0)
		return daemon_main(argc - 1, argv + 1);
	if (argc >= 2 && strcmp(argv[1], "_shim") == 0)
		return shim_main(argc - 1, argv + 1);
#ifdef CAISSON_FAULT_POINTS
	if (argc == 2 && strcmp(argv[1], "_fault-points") == 0)
		return fault_list();
#endif
	return cli_main(argc, argv);
}
