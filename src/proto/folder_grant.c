/* A folder that a user gives to a sandbox. See folder_grant.h. */
#include "proto/folder_grant.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
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

#ifndef SCM_PIDFD
#define SCM_PIDFD 0x04 /* Linux 6.5: a descriptor of the sender */
#endif

/* Adds the control messages: the directory, and the sender's ids. */
union grant_control {
	char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
	struct cmsghdr align;
};

static struct cmsghdr *message_put_control(struct msghdr *header, struct cmsghdr *at, int type,
					   const void *data, size_t size)
{
	at->cmsg_level = SOL_SOCKET;
	at->cmsg_type = type;
	at->cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(at), data, size);
	return CMSG_NXTHDR(header, at);
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
	union grant_control control = {0};
	struct iovec iov = {.iov_base = message, .iov_len = sizeof(message)};
	struct msghdr header = {.msg_iov = &iov,
				.msg_iovlen = 1,
				.msg_control = control.bytes,
				.msg_controllen = sizeof(control.bytes)};
	struct ucred self = {.pid = getpid(), .uid = geteuid(), .gid = getegid()};
	struct cmsghdr *next = message_put_control(&header, CMSG_FIRSTHDR(&header), SCM_RIGHTS,
						   &directory, sizeof(directory));
	message_put_control(&header, next, SCM_CREDENTIALS, &self, sizeof(self));
	if (sendmsg(used, &header, MSG_NOSIGNAL) < 0)
		return -errno;
	return TAKE_FD(given);
}

/* The descriptor of a control message, or -1. If there are several, all are closed, since
 * receiving made them ours. */
static int message_only_descriptor(const struct cmsghdr *rights)
{
	int fds[sizeof(union grant_control) / sizeof(int)];
	size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(fds, CMSG_DATA(rights), count * sizeof(int));
	for (size_t i = 0; count != 1 && i < count; i++)
		close(fds[i]);
	return count == 1 ? fds[0] : -1;
}

/* Reads the message in the socket, which keeps it. The descriptor is a new one. The pid is 0 if the
 * sender did not send its ids (if the kernel adds them by itself, they are true). */
static int grant_peek(int socket, uint8_t message[GRANT_SIZE], int *ret_directory,
		      struct ucred *ret_sender)
{
	union grant_control control;
	struct iovec iov = {.iov_base = message, .iov_len = GRANT_SIZE};
	struct msghdr header = {.msg_iov = &iov,
				.msg_iovlen = 1,
				.msg_control = control.bytes,
				.msg_controllen = sizeof(control.bytes)};
	CLOSE_FD int directory = -1;
	struct ucred sender = {0};
	ssize_t got = recvmsg(socket, &header, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0)
		return -errno;
	for (struct cmsghdr *at = CMSG_FIRSTHDR(&header); at; at = CMSG_NXTHDR(&header, at)) {
		if (at->cmsg_level != SOL_SOCKET)
			continue;
		if (at->cmsg_type == SCM_RIGHTS)
			directory = message_only_descriptor(at);
		/* The process that made the socket may request pidfds at any time
		 * (SO_PASSPIDFD). */
		if (at->cmsg_type == SCM_PIDFD)
			close(message_only_descriptor(at));
		if (at->cmsg_type == SCM_CREDENTIALS && at->cmsg_len == CMSG_LEN(sizeof(sender)))
			memcpy(&sender, CMSG_DATA(at), sizeof(sender));
	}
	if (got != GRANT_SIZE || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || directory < 0)
		return -EBADMSG;
	*ret_directory = TAKE_FD(directory);
	*ret_sender = sender;
	return 0;
}

/* Neither end of a socket pair has a name. After bind() or connect(), one of the ends has one. */
static bool socket_is_unnamed_pair(int socket)
{
	struct sockaddr_un here, there;
	socklen_t here_size = sizeof(here), there_size = sizeof(there), size = sizeof(int);
	int type;
	return getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
	       type == SOCK_SEQPACKET &&
	       getsockname(socket, (struct sockaddr *)&here, &here_size) == 0 &&
	       here.sun_family == AF_UNIX && here_size == sizeof(sa_family_t) &&
	       getpeername(socket, (struct sockaddr *)&there, &there_size) == 0 &&
	       there_size == sizeof(sa_family_t);
}

/* Since the other end is closed, nothing can be added behind the message: it is the one that the
 * socket's maker sent. */
static bool socket_other_end_closed(int socket)
{
	char byte;
	return send(socket, "", 0, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EPIPE &&
	       recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

int folder_grant_open(int socket, struct folder_grant *ret_grant, struct error *error)
{
	uint8_t message[GRANT_SIZE];
	struct ucred maker, sender = {0};
	socklen_t size = sizeof(maker);
	int on = 1;
	if (!socket_is_unnamed_pair(socket) || !socket_other_end_closed(socket) ||
	    getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &maker, &size) < 0 ||
	    setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
		return error_set(error, ERROR_INVALID,
				 "a folder is given with a grant, not as a plain descriptor");
	CLOSE_FD int directory = -1;
	int result = grant_peek(socket, message, &directory, &sender);
	if (result < 0)
		return error_set_errno(error, ERROR_INVALID, result, "the grant of a folder");
	struct reader reader = reader_on(message, sizeof(message));
	uint32_t magic = read_u32(&reader), mode = read_u32(&reader);
	if (magic != GRANT_MAGIC || !mount_mode_name(mode))
		return error_set(error, ERROR_INVALID, "the grant of a folder is malformed");
	if (sender.pid == 0 || sender.uid != maker.uid || sender.gid != maker.gid)
		return error_set(error, ERROR_INVALID,
				 "the grant of a folder names no sender, or one that is "
				 "not visible from here");
	*ret_grant = (struct folder_grant){
	    .directory = TAKE_FD(directory), .mode = mode, .uid = sender.uid, .gid = sender.gid};
	return 0;
}

void folder_grant_done(struct folder_grant *grant)
{
	fd_close(&grant->directory);
}
