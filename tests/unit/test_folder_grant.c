/* Who gives a folder, as the spawner reads it: from its maker, and from nothing that a daemon which
 * was taken over can put in its place. */
#include "proto/folder_grant.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "test.h"

#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif

TEST_MAIN

/* A grant's words and a directory, sent into a socket that is closed then. With `named`, as who it
 * is. The other end is what a daemon would pass on. */
static void send_grant(int socket, bool named)
{
	int directory = open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	union {
		char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} control = {0};
	uint8_t words[8] = "GRNT\1\0\0";
	struct iovec iov = {.iov_base = words, .iov_len = sizeof(words)};
	struct msghdr header = {.msg_iov = &iov,
				.msg_iovlen = 1,
				.msg_control = control.bytes,
				.msg_controllen = CMSG_SPACE(sizeof(int))};
	struct cmsghdr *at = CMSG_FIRSTHDR(&header);
	*at = (struct cmsghdr){
	    .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
	memcpy(CMSG_DATA(at), &directory, sizeof(directory));
	if (named) {
		struct ucred self = {.pid = getpid(), .uid = geteuid(), .gid = getegid()};
		header.msg_controllen = sizeof(control.bytes);
		at = CMSG_NXTHDR(&header, at);
		*at = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
				       .cmsg_type = SCM_CREDENTIALS,
				       .cmsg_len = CMSG_LEN(sizeof(self))};
		memcpy(CMSG_DATA(at), &self, sizeof(self));
	}
	CHECK_INT(sendmsg(socket, &header, MSG_NOSIGNAL), 8);
	close(directory);
}

/* The kind of the error, or ERROR_NONE. */
static uint32_t open_grant(int socket)
{
	struct folder_grant grant;
	struct error error = {0};
	if (folder_grant_open(socket, &grant, &error) < 0)
		return error.kind;
	CHECK_INT(grant.mode, MOUNT_READ_WRITE);
	CHECK_INT(grant.uid, geteuid());
	CHECK_INT(grant.gid, getegid());
	folder_grant_done(&grant);
	return ERROR_NONE;
}

TEST(grants_can_be_used_again)
{
	int directory = open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int grant = folder_grant_make(directory, MOUNT_READ_WRITE);
	CHECK(grant >= 0);
	CHECK_INT(open_grant(grant), ERROR_NONE);
	CHECK_INT(open_grant(grant), ERROR_NONE);
	CHECK_INT(open_grant(directory), ERROR_INVALID);
	close(grant);
	close(directory);
}

/* No descriptor stays open: the lowest free one is the same as before. */
static void check_refused_without_trace(int grant)
{
	int free_before = dup(grant);
	close(free_before);
	CHECK_INT(open_grant(grant), ERROR_INVALID);
	int free_after = dup(grant);
	close(free_after);
	CHECK_INT(free_after, free_before);
	close(grant);
}

/* They would stay open in the spawner, which is root's and serves everybody. */
TEST(grants_of_several_descriptors_leave_none_behind)
{
	int pair[2];
	int many[] = {STDIN_FILENO, STDIN_FILENO, STDIN_FILENO};
	for (size_t count = 2; count <= ARRAY_SIZE(many); count++) {
		CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
		CHECK_INT(fd_send(pair[1], "GRNT\1\0\0\0", 8, many, count), 8);
		close(pair[1]);
		check_refused_without_trace(pair[0]);
	}
}

/* The maker may ask for descriptors of the sender in our name. */
TEST(grants_with_a_pidfd_leave_none_behind)
{
	int pair[2], on = 1;
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	(void)setsockopt(pair[0], SOL_SOCKET, SO_PASSPIDFD, &on, sizeof(on)); /* Linux 6.5 */
	CHECK_INT(send(pair[1], "GRNT\1\0\0\0", 8, 0), 8);
	close(pair[1]);
	check_refused_without_trace(pair[0]);
}

/* As most are: caisson run has ended when a sandbox is started again. */
TEST(grants_outlive_their_maker)
{
	int outer[2], status;
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, outer), 0);
	pid_t child = fork();
	if (child == 0) {
		int directory = open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		int made = folder_grant_make(directory, MOUNT_READ_WRITE);
		_exit(fd_send(outer[1], "x", 1, &made, 1) == 1 ? 0 : 1);
	}
	CHECK_INT(waitpid(child, &status, 0), child);
	CHECK_INT(status, 0);
	char byte;
	int grant = -1;
	size_t count = 1;
	CHECK_INT(fd_receive(outer[0], &byte, 1, &grant, &count), 1);
	CHECK_INT(open_grant(grant), ERROR_NONE);
	close(grant);
	close(outer[0]);
	close(outer[1]);
}

TEST(grants_are_of_a_closed_pair_and_of_its_maker)
{
	/* A pair whose other end is still held: whoever holds it could say anything later. */
	int pair[2];
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	send_grant(pair[1], true);
	CHECK_INT(open_grant(pair[0]), ERROR_INVALID);
	close(pair[1]);
	/* Closed now: it is a grant like any other, and of this very user. */
	CHECK_INT(open_grant(pair[0]), ERROR_NONE);
	close(pair[0]);
	/* Nobody says who gives it. */
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	send_grant(pair[1], false);
	close(pair[1]);
	CHECK_INT(open_grant(pair[0]), ERROR_INVALID);
	close(pair[0]);
	/* Another kind of pair. */
	CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	send_grant(pair[1], true);
	close(pair[1]);
	CHECK_INT(open_grant(pair[0]), ERROR_INVALID);
	close(pair[0]);
}

/* The kernel says of the client's end of a connection that it was made by who called listen(): of
 * the API's socket, root. A daemon can connect to it and accept that connection itself. */
TEST(connections_are_no_grants)
{
	for (int type = SOCK_STREAM; type <= SOCK_SEQPACKET; type += SOCK_SEQPACKET - SOCK_STREAM) {
		struct sockaddr_un address = {.sun_family = AF_UNIX};
		snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/caisson-grant-%d",
			 getpid());
		int listener = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
		CHECK_INT(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
		CHECK_INT(listen(listener, 1), 0);
		int client = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
		CHECK_INT(connect(client, (struct sockaddr *)&address, sizeof(address)), 0);
		int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		send_grant(accepted, true);
		close(accepted);
		CHECK_INT(open_grant(client), ERROR_INVALID);
		close(client);
		close(listener);
		CHECK_INT(unlink(address.sun_path), 0);
	}
}

/* A pair of one user's into which another has sent. */
TEST(grants_of_two_users_are_nobodys)
{
	if (geteuid() != 0)
		SKIP("only root can be two users");
	int pair[2];
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	CHECK_INT(seteuid(65534), 0);
	send_grant(pair[1], true);
	CHECK_INT(seteuid(0), 0);
	close(pair[1]);
	CHECK_INT(open_grant(pair[0]), ERROR_INVALID);
	close(pair[0]);
}
