/* A folder that a user gives to a sandbox. See folder_grant.h. */
#include "proto/folder_grant.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/codec.h"

#define GRANT_MAGIC 0x544e5247u /* "GRNT" */
#define GRANT_SIZE 8

static const char *const mode_names[] = {
    [MOUNT_READ_ONLY] = "ro",
    [MOUNT_READ_WRITE] = "rw",
    [MOUNT_COPY_ON_WRITE] = "cow",
};

const char *mount_mode_name(uint32_t mode)
{
	return mode < ARRAY_SIZE(mode_names) ? mode_names[mode] : NULL;
}

int mount_mode_parse(const char *name, enum mount_mode *ret_mode)
{
	for (uint32_t mode = 0; mode < ARRAY_SIZE(mode_names); mode++) {
		if (strcmp(name, mode_names[mode]) != 0)
			continue;
		*ret_mode = (enum mount_mode)mode;
		return 0;
	}
	return -EINVAL;
}

int folder_grant_make(int directory, enum mount_mode mode)
{
	uint8_t message[GRANT_SIZE];
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	CLOSE_FD int given = pair[0], used = pair[1];
	struct writer writer = writer_on(message, sizeof(message));
	write_u32(&writer, GRANT_MAGIC);
	write_u32(&writer, mode);
	ssize_t sent = fd_send(used, message, sizeof(message), &directory, 1);
	if (sent < 0)
		return (int)sent;
	return TAKE_FD(given);
}

/* The message that waits in the socket, which keeps it. The descriptor is a new one. */
static int peek(int socket, uint8_t message[GRANT_SIZE], int *ret_directory)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = message, .iov_len = GRANT_SIZE};
	struct msghdr header = {.msg_iov = &iov,
				.msg_iovlen = 1,
				.msg_control = control.bytes,
				.msg_controllen = sizeof(control.bytes)};
	ssize_t got = recvmsg(socket, &header, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0)
		return -errno;
	struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
	CLOSE_FD int directory = -1;
	if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS &&
	    rights->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&directory, CMSG_DATA(rights), sizeof(int));
	if (got != GRANT_SIZE || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || directory < 0)
		return -EBADMSG;
	*ret_directory = TAKE_FD(directory);
	return 0;
}

/* That the other end is closed is what makes the message the maker's: nothing can follow it. */
static bool other_end_closed(int socket)
{
	char byte;
	return send(socket, "", 0, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EPIPE &&
	       recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

int folder_grant_open(int socket, struct folder_grant *ret_grant, struct error *error)
{
	uint8_t message[GRANT_SIZE];
	struct ucred maker;
	socklen_t size = sizeof(maker);
	struct stat status;
	if (fstat(socket, &status) < 0 || !S_ISSOCK(status.st_mode) ||
	    getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &maker, &size) < 0 ||
	    size != sizeof(maker) || maker.uid == (uid_t)-1 || !other_end_closed(socket))
		return error_set(error, ERROR_INVALID,
				 "a folder is given with a grant, not as a plain descriptor");
	CLOSE_FD int directory = -1;
	int result = peek(socket, message, &directory);
	if (result < 0)
		return error_set_errno(error, ERROR_INVALID, result, "the grant of a folder");
	struct reader reader = reader_on(message, sizeof(message));
	uint32_t magic = read_u32(&reader), mode = read_u32(&reader);
	if (magic != GRANT_MAGIC || !mount_mode_name(mode))
		return error_set(error, ERROR_INVALID, "the grant of a folder is malformed");
	*ret_grant = (struct folder_grant){
	    .directory = TAKE_FD(directory), .mode = mode, .uid = maker.uid, .gid = maker.gid};
	return 0;
}

void folder_grant_done(struct folder_grant *grant)
{
	fd_close(&grant->directory);
}
