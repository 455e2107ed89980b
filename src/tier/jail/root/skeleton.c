/* Makes the skeleton of template `host`: copies of a few listed files of the host's /etc, files and
 * directories of our own, a Python environment and a place for npm. See skeleton.h.
 *
 * Only what everyone on the host may read is copied: regular files with o+r below directories with
 * o+x. A link is copied as a link, and only when it leads to the host's programs; its target may or
 * may not exist inside. The list has what packages ship and programs need. It leaves out
 * world-readable files that people write credentials into (npmrc, pip.conf, gitconfig, wgetrc,
 * environment, profile, maven's settings, apt's sources). */
#include "tier/jail/root/skeleton.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/limits.h"
#include "base/text.h"
#include "proto/boot_messages.h"
#include "tier/jail/root/skeleton_files.h"

#define ENTRIES_MAX 20000
#define DEPTH_MAX 8
#define FILE_BYTES_MAX (8 * MIB)
#define TOTAL_BYTES_MAX (64 * MIB)

const struct skeleton_place skeleton_places[SKELETON_PLACES] = {
    {"usr", PLACE_USR},     {"bin", PLACE_BIN},     {"sbin", PLACE_SBIN}, {"lib", PLACE_LIB},
    {"lib32", PLACE_LIB32}, {"lib64", PLACE_LIB64}, {"libx32", 0},
};

enum source_kind {
	SOURCE_FILE,  /* one file (or link) */
	SOURCE_LINKS, /* the links of a directory */
	SOURCE_TREE,  /* files, links and directories, recursively */
};

struct source {
	enum source_kind kind;
	const char *directory; /* below the host's root */
	const char *name;      /* a pattern for fnmatch(3) */
};

static const struct source sources[] = {
    /* the loader */
    {SOURCE_FILE, "etc", "ld.so.cache"},
    {SOURCE_FILE, "etc", "ld.so.conf"},
    {SOURCE_TREE, "etc", "ld.so.conf.d"},
    {SOURCE_FILE, "etc", "ld-musl-*.path"},
    /* alternatives */
    {SOURCE_LINKS, "etc/alternatives", "*"},
    /* certificates of authorities; never a key, never this host's own certificates */
    {SOURCE_FILE, "etc", "ca-certificates.conf"},
    {SOURCE_FILE, "etc/ssl", "openssl.cnf"},
    {SOURCE_FILE, "etc/ssl", "cert.pem"},
    {SOURCE_LINKS, "etc/ssl", "certs"},
    {SOURCE_LINKS, "etc/ssl/certs", "*"},
    {SOURCE_FILE, "etc/ssl/certs", "ca-certificates.crt"},
    {SOURCE_FILE, "etc/ssl/certs/java", "cacerts"},
    {SOURCE_TREE, "etc/ca-certificates", "extracted"},
    {SOURCE_TREE, "etc/pki/ca-trust", "extracted"},
    {SOURCE_FILE, "etc/pki/tls", "openssl.cnf"},
    {SOURCE_LINKS, "etc/pki/tls", "*"},
    {SOURCE_LINKS, "etc/pki/tls/certs", "*"},
    {SOURCE_TREE, "etc", "crypto-policies"},
    /* names and numbers */
    {SOURCE_FILE, "etc", "localtime"},
    {SOURCE_FILE, "etc", "timezone"},
    {SOURCE_FILE, "etc", "mime.types"},
    {SOURCE_FILE, "etc", "magic"},
    {SOURCE_FILE, "etc", "magic.mime"},
    {SOURCE_FILE, "etc", "services"},
    {SOURCE_FILE, "etc", "protocols"},
    {SOURCE_FILE, "etc", "rpc"},
    {SOURCE_FILE, "etc", "ethertypes"},
    {SOURCE_FILE, "etc", "netconfig"},
    {SOURCE_FILE, "etc", "gai.conf"},
    {SOURCE_FILE, "etc", "host.conf"},
    {SOURCE_FILE, "etc", "locale.alias"},
    {SOURCE_FILE, "etc", "locale.conf"},
    {SOURCE_FILE, "etc", "xattr.conf"},
    {SOURCE_FILE, "etc", "shells"},
    {SOURCE_FILE, "etc", "login.defs"},
    {SOURCE_FILE, "etc", "inputrc"},
    {SOURCE_FILE, "etc", "nanorc"},
    {SOURCE_FILE, "etc", "manpath.config"},
    {SOURCE_FILE, "etc", "mke2fs.conf"},
    {SOURCE_TREE, "etc", "terminfo"},
    {SOURCE_TREE, "etc", "fonts"},
    /* the operating system's name */
    {SOURCE_FILE, "etc", "os-release"},
    {SOURCE_FILE, "etc", "lsb-release"},
    {SOURCE_FILE, "etc", "debian_version"},
    {SOURCE_FILE, "etc", "*-release"},
    /* interpreters and tools that keep their own files in /etc */
    {SOURCE_TREE, "etc", "python[23]*"},
    {SOURCE_TREE, "etc", "perl"},
    {SOURCE_TREE, "etc", "java-*-openjdk"},
    {SOURCE_TREE, "etc", "gdb"},
    {SOURCE_TREE, "etc", "vim"},
    {SOURCE_TREE, "etc", "ImageMagick-*"},
    {SOURCE_TREE, "etc", "texmf"},
    {SOURCE_FILE, "etc/maven", "m2.conf"},
    {SOURCE_TREE, "etc/maven", "logging"},
};

/* Left out everywhere: backup files of editors and packages, manual pages (links to them are
 * most of a large /etc/alternatives), and names that suggest a key. */
static const char *const left_out[] = {".*",       "*~",         "*.bak", "*.old",
				       "*.dpkg-*", "*.rpm*",     "*.key", "*private*",
				       "*secret*", "*password*", "*.gz",  "*shadow*"};

/* One file or link that is to be copied. */
struct source_entry {
	int directory; /* its directory, O_PATH */
	const char *name;
	const char *path; /* relative to the root, of the host and of the skeleton */
	struct stat status;
	char link[PATH_MAX]; /* the target, if it is a link */
};

struct walk {
	int host_root;
	int (*visit)(struct walk *walk, const struct source_entry *found, struct error *error);
	EVP_MD_CTX *digest; /* for digest_visit() */
	bool digest_failed;
	int directory; /* for copy_visit() */
	uint32_t entries;
	uint64_t bytes;
};

static bool name_is_left_out(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(left_out); i++) {
		if (fnmatch(left_out[i], name, 0) == 0)
			return true;
	}
	return false;
}

/* A link is copied when it stays in its directory or leads to the host's programs or to /etc. It
 * must not go up by more than is needed to reach the root, so that its text reveals nothing
 * about the rest of the host. */
static bool link_is_copied(const char *link)
{
	static const char *const places[] = {"/usr/", "/etc/", "/bin/", "/sbin/", "/lib", NULL};
	const char *rest = link;
	while (strncmp(rest, "../", 3) == 0)
		rest += 3;
	if (strstr(rest, "..") || strchr(link, '\n'))
		return false;
	if (*link != '/' && rest == link)
		return true;
	char absolute[PATH_MAX];
	if (text_format(absolute, sizeof(absolute), "%s%s", *link == '/' ? "" : "/", rest) < 0)
		return false;
	for (size_t i = 0; places[i]; i++) {
		if (text_starts(absolute, places[i]))
			return true;
	}
	/* "../foo/x" in a subdirectory of /etc: a sibling directory. */
	return *link != '/' && rest == link + 3;
}

/* Opens a directory of the host's for reading. Every component must be a directory that everyone
 * may search; links and missing components are -ENOENT. */
static int public_directory_open(int host_root, const char *path)
{
	CLOSE_FD int fd = fcntl(host_root, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	while (*path) {
		char name[NAME_MAX + 1];
		size_t length = strcspn(path, "/");
		if (length >= sizeof(name))
			return -ENAMETOOLONG;
		memcpy(name, path, length);
		name[length] = '\0';
		path += length + (path[length] == '/');
		int next = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			return errno == ENOTDIR || errno == ELOOP ? -ENOENT : -errno;
		fd_close(&fd);
		fd = next;
		struct stat status;
		if (fstat(fd, &status) < 0)
			return -errno;
		if (!(status.st_mode & S_IXOTH))
			return -ENOENT;
	}
	return TAKE_FD(fd);
}

static int walk_visit(struct walk *walk, struct source_entry *found, struct error *error)
{
	if (S_ISLNK(found->status.st_mode)) {
		ssize_t length =
		    readlinkat(found->directory, found->name, found->link, sizeof(found->link) - 1);
		if (length <= 0 || (size_t)length >= sizeof(found->link) - 1)
			return 0;
		found->link[length] = '\0';
		if (!link_is_copied(found->link))
			return 0;
	} else if (!S_ISREG(found->status.st_mode) || !(found->status.st_mode & S_IROTH) ||
		   (uint64_t)found->status.st_size > FILE_BYTES_MAX) {
		return 0;
	} else {
		walk->bytes += (uint64_t)found->status.st_size;
	}
	if (++walk->entries > ENTRIES_MAX || walk->bytes > TOTAL_BYTES_MAX)
		return error_set(error, ERROR_TEMPLATE_UNAVAILABLE,
				 "too many or too large files of /etc to copy");
	return walk->visit(walk, found, error);
}

static int names_compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Reads the names in a directory, sorted: the digest must not depend on the order of the file
 * system. The caller frees. */
static int names_read(int directory, char ***ret_names, size_t *ret_count)
{
	int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	DIR *stream = fdopendir(fd);
	if (!stream) {
		int failed = -errno;
		close(fd);
		return failed;
	}
	size_t count = 0, room = 0;
	char **names = NULL;
	int failed = 0;
	for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
		if (name_is_left_out(entry->d_name))
			continue;
		if (count == room) {
			room = room ? room * 2 : 64;
			char **larger = room > ENTRIES_MAX * 2
					    ? NULL
					    : reallocarray(names, room, sizeof(char *));
			if (!larger) {
				failed = -ENOMEM;
				break;
			}
			names = larger;
		}
		names[count++] = text_duplicate(entry->d_name);
	}
	closedir(stream);
	if (count > 0)
		qsort(names, count, sizeof(char *), names_compare);
	*ret_names = names;
	*ret_count = count;
	return failed;
}

static void names_free(char **names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(names[i]);
	free(names);
}

static int walk_directory(struct walk *walk, int directory, const char *path, enum source_kind kind,
			  const char *pattern, unsigned depth, struct error *error);

/* Descends into a directory of a tree if everyone may list it. */
static int walk_into(struct walk *walk, const struct source_entry *found, unsigned depth,
		     struct error *error)
{
	if (depth >= DEPTH_MAX || !(found->status.st_mode & S_IROTH) ||
	    !(found->status.st_mode & S_IXOTH))
		return 0;
	CLOSE_FD int fd =
	    openat(found->directory, found->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return 0; /* it has disappeared */
	return walk_directory(walk, fd, found->path, SOURCE_TREE, "*", depth + 1, error);
}

static int walk_name(struct walk *walk, int directory, const char *path, const char *name,
		     enum source_kind kind, unsigned depth, struct error *error)
{
	char full[PATH_MAX];
	if (text_format(full, sizeof(full), "%s/%s", path, name) < 0)
		return 0;
	struct source_entry found = {.directory = directory, .name = name, .path = full};
	if (fstatat(directory, name, &found.status, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	bool link = S_ISLNK(found.status.st_mode);
	if (S_ISDIR(found.status.st_mode))
		return kind == SOURCE_TREE ? walk_into(walk, &found, depth, error) : 0;
	return kind == SOURCE_LINKS && !link ? 0 : walk_visit(walk, &found, error);
}

static int walk_directory(struct walk *walk, int directory, const char *path, enum source_kind kind,
			  const char *pattern, unsigned depth, struct error *error)
{
	/* A plain name needs no search. */
	if (!strpbrk(pattern, "*?["))
		return walk_name(walk, directory, path, pattern, kind, depth, error);
	char **names = NULL;
	size_t count = 0;
	int failed = names_read(directory, &names, &count);
	if (failed < 0)
		error_set_errno(error, error_kind_of_errno(-failed), failed, "reading /%s", path);
	for (size_t i = 0; i < count && failed == 0; i++) {
		if (fnmatch(pattern, names[i], 0) == 0)
			failed = walk_name(walk, directory, path, names[i], kind, depth, error);
	}
	names_free(names, count);
	return failed < 0 ? -1 : 0;
}

static int walk_sources(struct walk *walk, struct error *error)
{
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		const struct source *source = &sources[i];
		CLOSE_FD int fd = public_directory_open(walk->host_root, source->directory);
		if (fd == -ENOENT)
			continue;
		if (fd < 0)
			return error_set_errno(error, error_kind_of_errno(-fd), fd, "opening /%s",
					       source->directory);
		if (walk_directory(walk, fd, source->directory, source->kind, source->name, 0,
				   error) < 0)
			return -1;
	}
	return 0;
}

int skeleton_place_is_bound(int host_root, const struct skeleton_place *place)
{
	struct stat status;
	if (fstatat(host_root, place->name, &status, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	return place->place != 0 && S_ISDIR(status.st_mode);
}

/* The link that the host has in place of a top directory; "" when it has none into /usr. */
static void place_read_link(int host_root, const struct skeleton_place *place, char link[64])
{
	ssize_t length = readlinkat(host_root, place->name, link, 63);
	link[length > 0 ? length : 0] = '\0';
	if (!text_starts(link, "usr/") && !text_starts(link, "/usr/"))
		link[0] = '\0';
}

/* A failure is kept in the walk and checked once at the end. */
static void digest_add_text(void *data, const char *text)
{
	struct walk *walk = data;
	if (EVP_DigestUpdate(walk->digest, text, strlen(text)) != 1)
		walk->digest_failed = true;
}

static int digest_visit(struct walk *walk, const struct source_entry *found,
			UNUSED struct error *error)
{
	char line[128];
	const struct stat *status = &found->status;
	snprintf(line, sizeof(line), " %o %lld %lld.%09ld ", status->st_mode,
		 (long long)status->st_size, (long long)status->st_mtim.tv_sec,
		 status->st_mtim.tv_nsec);
	digest_add_text(walk, found->path);
	digest_add_text(walk, line);
	digest_add_text(walk, found->link);
	digest_add_text(walk, "\n");
	return 0;
}

static void digest_free(EVP_MD_CTX **context)
{
	EVP_MD_CTX_free(*context);
}

int skeleton_digest(int host_root, char digest[SKELETON_DIGEST_TEXT], struct error *error)
{
	CLEANUP(digest_free) EVP_MD_CTX *context = EVP_MD_CTX_new();
	if (!context || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1)
		return error_set(error, ERROR_INTERNAL, "SHA-256 is not available");
	struct walk walk = {.host_root = host_root, .visit = digest_visit, .digest = context};

	char line[256], python[SKELETON_PYTHON_TEXT];
	skeleton_find_python(host_root, python);
	snprintf(line, sizeof(line), "caisson %s layout %d uid %u python %s wheels %d\n",
		 CAISSON_VERSION, SKELETON_LAYOUT, geteuid(), python,
		 skeleton_has_wheels(host_root));
	digest_add_text(&walk, line);
	skeleton_describe_files(digest_add_text, &walk);
	for (size_t i = 0; i < SKELETON_PLACES; i++) {
		char link[64];
		place_read_link(host_root, &skeleton_places[i], link);
		snprintf(line, sizeof(line), "%s %d %s\n", skeleton_places[i].name,
			 skeleton_place_is_bound(host_root, &skeleton_places[i]), link);
		digest_add_text(&walk, line);
	}
	if (walk_sources(&walk, error) < 0)
		return -1;
	unsigned char bytes[32];
	if (walk.digest_failed || EVP_DigestFinal_ex(context, bytes, NULL) != 1)
		return error_set(error, ERROR_INTERNAL, "SHA-256 failed");
	text_hex(bytes, sizeof(bytes), digest);
	return 0;
}

/* Checked again after the open: the file may have changed since fstatat(). O_NONBLOCK: it may
 * have become a FIFO. */
static int skeleton_file_copy(int from_directory, const char *name, int to_directory,
			      const char *path)
{
	CLOSE_FD int from =
	    openat(from_directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	if (from < 0)
		return -errno;
	struct stat status;
	if (fstat(from, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode) || !(status.st_mode & S_IROTH))
		return -ENOENT;
	CLOSE_FD int to =
	    openat(to_directory, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	int result = fd_copy(from, to, FILE_BYTES_MAX);
	if (result < 0)
		return result;
	return fchmod(to, status.st_mode & 0111 ? 0755 : 0644) < 0 ? -errno : 0;
}

static int copy_visit(struct walk *walk, const struct source_entry *found, struct error *error)
{
	int failed = skeleton_make_parents(walk->directory, found->path);
	if (failed < 0)
		return error_set_errno(error, error_kind_of_errno(-failed), failed, "%s",
				       found->path);
	if (found->link[0])
		failed = symlinkat(found->link, walk->directory, found->path) < 0 ? -errno : 0;
	else
		failed =
		    skeleton_file_copy(found->directory, found->name, walk->directory, found->path);
	/* Two sources may name one file, and a file may have disappeared. */
	if (failed < 0 && failed != -EEXIST && failed != -ENOENT && failed != -ELOOP)
		return error_set_errno(error, error_kind_of_errno(-failed), failed, "copying /%s",
				       found->path);
	return 0;
}

static int places_make(int host_root, int directory, struct error *error)
{
	for (size_t i = 0; i < SKELETON_PLACES; i++) {
		const struct skeleton_place *place = &skeleton_places[i];
		char link[64];
		place_read_link(host_root, place, link);
		int bound = skeleton_place_is_bound(host_root, place);
		int failed = bound < 0 ? bound : 0;
		if (link[0])
			failed = symlinkat(link, directory, place->name) < 0 ? -errno : 0;
		else if (bound > 0)
			failed = mkdirat(directory, place->name, 0755) < 0 ||
					 fchmodat(directory, place->name, 0755, 0) < 0
				     ? -errno
				     : 0;
		if (failed < 0)
			return error_set_errno(error, error_kind_of_errno(-failed), failed, "/%s",
					       place->name);
	}
	return 0;
}

int skeleton_build(int host_root, int directory, struct error *error)
{
	struct walk walk = {.host_root = host_root, .visit = copy_visit, .directory = directory};
	/* Our own files come first: the host's files of the same names are then not copied. */
	if (places_make(host_root, directory, error) < 0 ||
	    skeleton_make_files(host_root, directory, error) < 0)
		return -1;
	return walk_sources(&walk, error);
}
