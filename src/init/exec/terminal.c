/* Opens terminals in the sandbox's own devpts. Called by exec.c; never blocks: the directory was
 * opened before user code ran, and no other files can be made in a devpts. */
#include "init/exec/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/fd.h"

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

#define ROWS_DEFAULT 24
#define COLUMNS_DEFAULT 80

static int pts_fd = -1;

void terminal_begin(void)
{
	pts_fd = open("/dev/pts", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* For a kernel without TIOCGPTPEER (gVisor's), inside of which nothing can be mounted over
 * devpts. */
static int terminal_open_slave(int master)
{
	char name[12];
	unsigned number;
	if (ioctl(master, TIOCGPTN, &number) < 0)
		return -1;
	snprintf(name, sizeof(name), "%u", number);
	return openat(pts_fd, name, O_RDWR | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
}

int terminal_open(uint16_t rows, uint16_t columns, int *ret_master, int *ret_slave)
{
	if (pts_fd < 0)
		return -ENODEV;
	CLOSE_FD int master =
	    openat(pts_fd, "ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	if (master < 0)
		return -errno;
	int locked = 0;
	if (ioctl(master, TIOCSPTLCK, &locked) < 0)
		return -errno;
	/* Through the master, not by a path that the sandbox could have changed. */
	int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		slave = terminal_open_slave(master);
	if (slave < 0)
		return -errno;
	terminal_resize(master, rows ? rows : ROWS_DEFAULT, columns ? columns : COLUMNS_DEFAULT);
	*ret_master = TAKE_FD(master);
	*ret_slave = slave;
	return 0;
}

void terminal_resize(int master, uint16_t rows, uint16_t columns)
{
	struct winsize size = {.ws_row = rows, .ws_col = columns};
	ioctl(master, TIOCSWINSZ, &size);
}
