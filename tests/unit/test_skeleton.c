/* The skeleton of template `host`, made from a host that is made up: what must be in it, and what
 * must not. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/boot_messages.h"
#include "test.h"
#include "tier/jail/root/skeleton.h"
#include "tier/jail/root/host_rootfs.h"
#include "tier/remove_tree.h"

static int host, made, top;
static char top_path[64];

static void put(const char *path, mode_t mode, const char *text)
{
	int fd = openat(host, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && fchmod(fd, mode) == 0 && fd_write_full(fd, text, strlen(text)) == 0);
	fd_close(&fd);
}

static void directory(const char *path, mode_t mode)
{
	CHECK(mkdirat(host, path, 0700) == 0 && fchmodat(host, path, mode, 0) == 0);
}

static bool has(const char *path)
{
	struct stat status;
	return fstatat(made, path, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

static void make_host(void)
{
	snprintf(top_path, sizeof(top_path), "/tmp/test-skeleton-XXXXXX");
	CHECK(mkdtemp(top_path) != NULL);
	top = open(top_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(mkdirat(top, "host", 0755) == 0 && mkdirat(top, "made", 0755) == 0);
	host = openat(top, "host", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	made = openat(top, "made", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	static const char *const directories[] = {
	    "usr",       "usr/bin",  "etc",      "etc/ssl",          "etc/ssl/certs",
	    "etc/fonts", "lib",      "etc/perl", "etc/alternatives", "etc/python3",
	    "root",      "etc/maven"};
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
		directory(directories[i], 0755);
	CHECK(symlinkat("usr/bin", host, "bin") == 0);
	CHECK(symlinkat("python3.11", host, "usr/bin/python3") == 0);
	put("etc/services", 0644, "ssh 22/tcp\n");
}

static void done_host(void)
{
	close(host);
	close(made);
	CHECK_INT(remove_tree(top, "host"), 0);
	CHECK_INT(remove_tree(top, "made"), 0);
	close(top);
	CHECK(rmdir(top_path) == 0);
}

static void build(void)
{
	struct error error;
	if (skeleton_build(host, made, &error) < 0)
		test_fail(__FILE__, __LINE__, "%s", error.message);
}

TEST(layout)
{
	make_host();
	build();
	char link[64] = "";
	CHECK(readlinkat(made, "bin", link, sizeof(link) - 1) > 0);
	CHECK_TEXT(link, "usr/bin");
	struct stat status;
	CHECK(fstatat(made, "lib", &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode));
	CHECK_INT(skeleton_place_is_bound(host, &skeleton_places[0]), 1);
	CHECK_INT(skeleton_place_is_bound(host, &skeleton_places[1]), 0);
	CHECK_INT(skeleton_place_is_bound(host, &skeleton_places[3]), 1);
	CHECK(fstatat(made, "tmp", &status, 0) == 0 && (status.st_mode & 07777) == 01777);
	CHECK(has("etc/services"));
	CHECK(has("etc/passwd"));
	CHECK(has("opt/venv/lib/python3.11/site-packages"));
	CHECK(has("opt/venv/bin/pip"));
	CHECK(!has("etc/shadow"));
	done_host();
}

/* Nothing that not everyone may read, and nothing that is not listed. */
TEST(nothing_private)
{
	make_host();
	put("etc/shadow", 0644, "marker");
	put("etc/npmrc", 0644, "marker");
	put("etc/environment", 0644, "marker");
	put("etc/profile", 0644, "marker");
	put("etc/maven/settings.xml", 0644, "marker");
	put("etc/mime.types", 0600, "marker");
	put("etc/protocols", 0640, "marker");
	put("etc/fonts/secret.key", 0644, "marker");
	put("etc/fonts/group-only", 0640, "marker");
	put("etc/fonts/public", 0644, "fine");
	put("etc/ssl/certs/this-host.pem", 0644, "marker");
	put("etc/ssl/certs/ca-certificates.crt", 0644, "fine");
	put("root/file", 0600, "marker");
	directory("etc/fonts/closed", 0700);
	put("etc/fonts/closed/readable", 0644, "marker");
	CHECK(mkfifoat(host, "etc/fonts/fifo", 0644) == 0);
	CHECK(symlinkat("/root/file", host, "etc/alternatives/away") == 0);
	CHECK(symlinkat("../../root/file", host, "etc/fonts/away") == 0);
	CHECK(symlinkat("/usr/../root/file", host, "etc/fonts/around") == 0);
	CHECK(symlinkat("/root/file", host, "etc/rpc") == 0);
	CHECK(symlinkat("/usr/bin/vim", host, "etc/alternatives/editor") == 0);
	build();
	static const char *const absent[] = {"etc/shadow",
					     "etc/npmrc",
					     "etc/environment",
					     "etc/maven/settings.xml",
					     "etc/mime.types",
					     "etc/protocols",
					     "etc/fonts/secret.key",
					     "etc/fonts/group-only",
					     "etc/fonts/closed",
					     "etc/fonts/fifo",
					     "etc/fonts/away",
					     "etc/fonts/around",
					     "etc/ssl/certs/this-host.pem",
					     "etc/alternatives/away",
					     "etc/rpc",
					     "root/file"};
	for (size_t i = 0; i < ARRAY_SIZE(absent); i++) {
		if (has(absent[i]))
			test_fail(__FILE__, __LINE__, "%s is there", absent[i]);
	}
	CHECK(has("etc/fonts/public"));
	CHECK(has("etc/ssl/certs/ca-certificates.crt"));
	CHECK(has("etc/alternatives/editor"));
	char text[512];
	CHECK(fd_read_small(made, "etc/profile", text, sizeof(text)) > 0);
	CHECK(strstr(text, "marker") == NULL);
	done_host();
}

/* A directory of /etc that others may not enter hides what is in it, whatever the files say. */
TEST(closed_parent)
{
	make_host();
	put("etc/ssl/openssl.cnf", 0644, "marker");
	CHECK(fchmodat(host, "etc/ssl", 0750, 0) == 0);
	build();
	CHECK(!has("etc/ssl/openssl.cnf"));
	done_host();
}

TEST(digest_follows_the_host)
{
	char first[SKELETON_DIGEST_TEXT], second[SKELETON_DIGEST_TEXT];
	struct error error;
	make_host();
	CHECK_INT(skeleton_digest(host, first, &error), 0);
	CHECK_INT(skeleton_digest(host, second, &error), 0);
	CHECK_TEXT(first, second);
	put("etc/unlisted", 0644, "x");
	CHECK_INT(skeleton_digest(host, second, &error), 0);
	CHECK_TEXT(first, second);
	put("etc/services", 0644, "ssh 22/tcp\nhttp 80/tcp\n");
	CHECK_INT(skeleton_digest(host, second, &error), 0);
	CHECK(strcmp(first, second) != 0);
	done_host();
}

/* This host's own template: made, found again, made anew when it is gone; old ones go when nobody
 * can stand on them. */
TEST(prepare_and_open)
{
	make_host();
	struct host paths = {.init_fd = -1};
	snprintf(paths.state, sizeof(paths.state), "%s/made", top_path);
	snprintf(paths.runtime, sizeof(paths.runtime), "%s/made/run", top_path);
	struct error error = {.message = ""};
	struct rootfs rootfs;
	CHECK_INT(host_rootfs_open(&paths, "", NULL, &rootfs, &error), -1);
	CHECK_INT(error.kind, ERROR_TEMPLATE_UNAVAILABLE);
	char prepared[ROOTFS_DIGEST_TEXT];
	CHECK_INT(host_rootfs_prepare(&paths, prepared, &error), 0);
	CHECK_INT(host_rootfs_open(&paths, "", NULL, &rootfs, &error), 0);
	CHECK_TEXT(prepared, rootfs.digest);
	CHECK_INT(rootfs.lower_count, 1);
	CHECK(rootfs.bind_count >= 1 && rootfs.bind_places[0] == PLACE_USR);
	struct stat status;
	CHECK(fstatat(rootfs.lowers[0], "etc/passwd", &status, 0) == 0);
	rootfs_done(&rootfs);
	CHECK_INT(rootfs.lower_count, 0);

	char current[ROOTFS_DIGEST_TEXT + 32], old[128], half[128];
	snprintf(current, sizeof(current), "templates/host/%s", rootfs.digest);
	CHECK(has(current));
	snprintf(old, sizeof(old), "templates/host/%064d", 0);
	snprintf(half, sizeof(half), "templates/host/new-1");
	CHECK(mkdirat(made, old, 0755) == 0 && mkdirat(made, half, 0755) == 0);
	CHECK(mkdirat(made, "run", 0755) == 0 && mkdirat(made, "run/guests", 0755) == 0 &&
	      mkdirat(made, "run/guests/one", 0755) == 0);
	CHECK_INT(host_rootfs_prepare(&paths, prepared, &error), 0);
	CHECK(has(old) && !has(half));
	/* By its digest, while it exists. */
	const char *old_digest = strrchr(old, '/') + 1;
	CHECK_INT(host_rootfs_open(&paths, old_digest, NULL, &rootfs, &error), 0);
	CHECK_TEXT(rootfs.digest, old_digest);
	rootfs_done(&rootfs);
	CHECK(unlinkat(made, "run/guests/one", AT_REMOVEDIR) == 0);
	CHECK_INT(host_rootfs_prepare(&paths, prepared, &error), 0);
	CHECK(!has(old));
	CHECK_INT(host_rootfs_open(&paths, old_digest, NULL, &rootfs, &error), -1);
	CHECK_INT(error.kind, ERROR_TEMPLATE_UNAVAILABLE);
	done_host();
}

TEST_MAIN
