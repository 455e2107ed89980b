/* Loop devices and the mounts on them. See loop_device.h. */
#include "tier/jail/disk/loop_device.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>

#include "base/fd.h"
#include "base/syscalls.h"

#define ATTEMPTS 64
#define DEVICE_ROOM 32

/* Binds a free device to the image. Another process may take the same free one at the same time. */
static int loop_device_bind(int image, uint32_t block_size, char device[DEVICE_ROOM])
{
	CLOSE_FD int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	if (control < 0)
		return -errno;
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		int number = ioctl(control, LOOP_CTL_GET_FREE);
		if (number < 0)
			return -errno;
		snprintf(device, DEVICE_ROOM, "/dev/loop%d", number);
		CLOSE_FD int loop = open(device, O_RDWR | O_CLOEXEC);
		if (loop < 0 && errno == EBUSY)
			continue;
		if (loop < 0)
			return -errno;
		/* Direct I/O, if the file system below can: otherwise every page would be cached
		 * twice. */
		struct loop_config config = {
		    .fd = (uint32_t)image,
		    .block_size = block_size,
		    .info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
		};
		if (ioctl(loop, LOOP_CONFIGURE, &config) == 0)
			return TAKE_FD(loop);
		if (errno != EBUSY)
			return -errno;
	}
	return -EBUSY;
}

int loop_device_mount(int image, uint32_t block_size)
{
	char device[DEVICE_ROOM];
	/* Closed only after the mount, because with autoclear the last close frees the device. */
	CLOSE_FD int loop = loop_device_bind(image, block_size, device);
	if (loop < 0)
		return loop;
	CLOSE_FD int fs = sys_fsopen("ext4", FSOPEN_CLOEXEC);
	if (fs < 0)
		return fs;
	int result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "source", device, 0);
	/* The image is sparse and zero: writing its tables would only fill the host's disk. */
	if (result >= 0)
		result = sys_fsconfig(fs, FSCONFIG_SET_FLAG, "noinit_itable", NULL, 0);
	if (result >= 0)
		result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "errors", "remount-ro", 0);
	/* No flush of the host's disk when a sandbox ends: see `volatile` in the init's set-up. */
	if (result >= 0)
		result = sys_fsconfig(fs, FSCONFIG_SET_FLAG, "nobarrier", NULL, 0);
	if (result >= 0)
		result = sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
	if (result < 0)
		return result;
	return sys_fsmount(fs, FSMOUNT_CLOEXEC,
			   MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
}
