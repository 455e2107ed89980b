/* Directories, accounts and settings of template `host`, and its Python environment: see
 * skeleton_files.h. All of it is our own; only the host's Python version is read. */
#include "tier/jail/root/skeleton_files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"

#define USER_ID 1000 /* the account `user` */
#define WHEELS "usr/share/python-wheels"

struct made_directory {
	const char *path;
	mode_t mode;
	uid_t owner;
};

/* /workspace is writable for everyone, without the sticky bit: with it the kernel would refuse
 * root access to a file that another user made there (fs.protected_regular). */
static const struct made_directory directories[] = {
    {"dev", 0755, 0},
    {"proc", 0555, 0},
    {"sys", 0555, 0},
    {"etc", 0755, 0},
    {"home", 0755, 0},
    {"home/user", 0755, USER_ID},
    {"media", 0755, 0},
    {"mnt", 0755, 0},
    {"opt", 0755, 0},
    {"root", 0700, 0},
    {"run", 0755, 0},
    {"run/lock", 01777, 0},
    {"srv", 0755, 0},
    {"tmp", 01777, 0},
    {"var", 0755, 0},
    {"var/cache", 0755, 0},
    {"var/lib", 0755, 0},
    {"var/log", 0755, 0},
    {"var/mail", 0755, 0},
    {"var/opt", 0755, 0},
    {"var/spool", 0755, 0},
    {"var/tmp", 01777, 0},
    {"workspace", 0777, 0},
    {"opt/npm", 0755, USER_ID},
    {"opt/npm/bin", 0755, USER_ID},
    {"opt/npm/lib", 0755, USER_ID},
    {"opt/npm/lib/node_modules", 0755, USER_ID},
};

struct made_file {
	const char *path;
	const char *text;
};

static const struct made_file files[] = {
    {"etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"
		   "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
		   "bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
		   "sys:x:3:3:sys:/dev:/usr/sbin/nologin\n"
		   "user:x:1000:1000:user:/home/user:/bin/bash\n"
		   "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"etc/group", "root:x:0:\n"
		  "daemon:x:1:\n"
		  "bin:x:2:\n"
		  "sys:x:3:\n"
		  "adm:x:4:\n"
		  "tty:x:5:\n"
		  "disk:x:6:\n"
		  "mail:x:8:\n"
		  "utmp:x:43:\n"
		  "staff:x:50:\n"
		  "users:x:100:\n"
		  "user:x:1000:\n"
		  "nogroup:x:65534:\n"},
    {"etc/nsswitch.conf", "passwd: files\n"
			  "group: files\n"
			  "shadow: files\n"
			  "hosts: files dns\n"
			  "networks: files\n"
			  "protocols: files\n"
			  "services: files\n"
			  "ethers: files\n"
			  "rpc: files\n"},
    {"etc/hosts", "127.0.0.1\tlocalhost\n"
		  "::1\tlocalhost ip6-localhost ip6-loopback\n"},
    {"etc/hostname", "sandbox\n"},
    {"etc/resolv.conf", ""},
    {"etc/fstab", ""},
    /* The host's own files are not copied: they may contain credentials, and Debian's profile
     * resets PATH. */
    {"etc/profile",
     "# Login shells keep the environment that the sandbox was given.\n"
     "if [ -n \"${BASH-}\" ] && [ -n \"${PS1-}\" ] && [ -r /etc/bash.bashrc ]; then\n"
     "\t. /etc/bash.bashrc\n"
     "fi\n"},
    {"etc/bash.bashrc", "[ -z \"${PS1-}\" ] && return\n"
			"shopt -s checkwinsize\n"
			"PS1='\\u@\\h:\\w\\$ '\n"},
    /* In a sandbox git's check of a directory's owner is useless, and a user's folder appears to
     * belong to `nobody`. */
    {"etc/gitconfig", "[safe]\n\tdirectory = *\n"},
};

static const struct made_file links[] = {
    {"etc/mtab", "../proc/self/mounts"},
    {"var/run", "../run"},
    {"var/lock", "../run/lock"},
};

int skeleton_make_parents(int directory, const char *path)
{
	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		char parent[PATH_MAX];
		if ((size_t)(slash - path) >= sizeof(parent))
			return -ENAMETOOLONG;
		memcpy(parent, path, (size_t)(slash - path));
		parent[slash - path] = '\0';
		if (mkdirat(directory, parent, 0755) < 0) {
			if (errno != EEXIST)
				return -errno;
		} else if (fchmodat(directory, parent, 0755, 0) <
			   0) { /* independent of the umask */
			return -errno;
		}
	}
	return 0;
}

/* Without root there is a single id, which owns everything. */
static int file_give_to(int fd, uid_t owner)
{
	if (owner == 0 || fchown(fd, owner, owner) == 0 || geteuid() != 0 || errno == EINVAL)
		return 0;
	return -errno;
}

static int directory_make(int directory, const char *path, mode_t mode, uid_t owner)
{
	int failed = skeleton_make_parents(directory, path);
	if (failed < 0)
		return failed;
	if (mkdirat(directory, path, 0700) < 0 && errno != EEXIST)
		return -errno;
	CLOSE_FD int fd = openat(directory, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchmod(fd, mode) < 0)
		return -errno;
	return file_give_to(fd, owner);
}

static int file_make(int directory, const char *path, mode_t mode, uid_t owner, const char *text)
{
	int failed = skeleton_make_parents(directory, path);
	if (failed < 0)
		return failed;
	CLOSE_FD int fd =
	    openat(directory, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	failed = fd_write_full(fd, text, strlen(text));
	if (failed < 0)
		return failed;
	if (fchmod(fd, mode) < 0)
		return -errno;
	return file_give_to(fd, owner);
}

void skeleton_find_python(int host_root, char python[SKELETON_PYTHON_TEXT])
{
	/* In the order of PATH. */
	static const char *const places[] = {"usr/local/bin", "usr/bin"};
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		char path[SKELETON_PYTHON_TEXT], link[SKELETON_PYTHON_TEXT];
		if (text_format(path, sizeof(path), "%s/python3", places[i]) < 0)
			continue;
		ssize_t length = readlinkat(host_root, path, link, sizeof(link) - 1);
		link[length > 0 ? length : 0] = '\0';
		const char *name = strrchr(link, '/') ? strrchr(link, '/') + 1 : link;
		unsigned minor;
		int used = 0;
		if (sscanf(name, "python3.%3u%n", &minor, &used) == 1 && name[used] == '\0' &&
		    text_format(python, SKELETON_PYTHON_TEXT, "/%s/%s", places[i], name) == 0)
			return;
	}
	python[0] = '\0';
}

bool skeleton_has_wheels(int host_root)
{
	return faccessat(host_root, WHEELS, R_OK | X_OK, 0) == 0;
}

/* A sandbox without a route is offline: builds then use the host's tools instead of downloading
 * their own, and pip does not retry. (pip reads this variable inverted: 0 switches isolation
 * off.) */
static const char pip_script[] =
    "#!/bin/sh\n"
    "if ! grep -q '^[^[:space:]]*[[:space:]]00000000' /proc/net/route 2>/dev/null; then\n"
    "\t: \"${PIP_NO_BUILD_ISOLATION=0}\" \"${PIP_RETRIES=0}\"\n"
    "\texport PIP_NO_BUILD_ISOLATION PIP_RETRIES\n"
    "fi\n"
    "exec /opt/venv/bin/python3 -m pip \"$@\"\n";

void skeleton_describe_files(void (*add)(void *data, const char *text), void *data)
{
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++) {
		char mode[32];
		snprintf(mode, sizeof(mode), " %o %u\n", directories[i].mode, directories[i].owner);
		add(data, directories[i].path);
		add(data, mode);
	}
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		add(data, files[i].path);
		add(data, files[i].text);
	}
	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		add(data, links[i].path);
		add(data, links[i].text);
	}
	add(data, pip_script);
}

static int venv_link(int directory, const char *name, const char *to)
{
	char path[PATH_MAX];
	int failed = text_format(path, sizeof(path), "opt/venv/%s", name);
	if (failed < 0)
		return failed;
	return symlinkat(to, directory, path) < 0 ? -errno : 0;
}

static int venv_make_settings(int directory, const char *python, bool wheels)
{
	char text[512], home[SKELETON_PYTHON_TEXT];
	const char *name = strrchr(python, '/') + 1;
	int failed = text_format(home, sizeof(home), "%.*s", (int)(name - 1 - python), python);
	if (failed < 0)
		return failed;
	failed = text_format(text, sizeof(text),
			     "home = %s\ninclude-system-site-packages = true\nversion = %s\n"
			     "executable = %s\n",
			     home, name + strlen("python"), python);
	if (failed < 0)
		return failed;
	failed = file_make(directory, "opt/venv/pyvenv.cfg", 0644, USER_ID, text);
	if (failed < 0)
		return failed;
	failed = text_format(text, sizeof(text),
			     "[global]\ndisable-pip-version-check = true\n"
			     "root-user-action = ignore\nretries = 2\n%s",
			     wheels ? "find-links = /" WHEELS "\n" : "");
	return failed < 0 ? failed : file_make(directory, "opt/venv/pip.conf", 0644, USER_ID, text);
}

/* A virtual environment as `python3 -m venv --system-site-packages` makes it, without running a
 * program of the host's. /usr is read-only, so packages are installed here. */
static int venv_make(int host_root, int directory)
{
	char python[SKELETON_PYTHON_TEXT], packages[PATH_MAX], versioned[SKELETON_PYTHON_TEXT + 8];
	skeleton_find_python(host_root, python);
	int failed = directory_make(directory, "opt/venv", 0755, USER_ID);
	if (failed < 0 || !python[0])
		return failed;
	const char *name = strrchr(python, '/') + 1;
	failed = text_format(packages, sizeof(packages), "opt/venv/lib/%s/site-packages", name);
	if (failed < 0)
		return failed;
	failed = text_format(versioned, sizeof(versioned), "bin/%s", name);
	if (failed < 0)
		return failed;

	char library[PATH_MAX];
	failed = text_format(library, sizeof(library), "opt/venv/lib/%s", name);
	const char *const made[] = {"opt/venv/bin", "opt/venv/include", "opt/venv/lib", library,
				    packages};
	for (size_t i = 0; i < ARRAY_SIZE(made) && failed == 0; i++)
		failed = directory_make(directory, made[i], 0755, USER_ID);
	if (failed == 0)
		failed = venv_link(directory, "lib64", "lib");
	if (failed == 0)
		failed = venv_link(directory, "bin/python3", python);
	if (failed == 0)
		failed = venv_link(directory, "bin/python", "python3");
	if (failed == 0)
		failed = venv_link(directory, versioned, "python3");
	if (failed == 0)
		failed = file_make(directory, "opt/venv/bin/pip", 0755, USER_ID, pip_script);
	if (failed == 0)
		failed = venv_link(directory, "bin/pip3", "pip");
	return failed < 0 ? failed
			  : venv_make_settings(directory, python, skeleton_has_wheels(host_root));
}

static int made_check(int failed, const char *path, struct error *error)
{
	if (failed == 0)
		return 0;
	return error_set_errno(error, error_kind_of_errno(-failed), failed, "making /%s", path);
}

int skeleton_make_files(int host_root, int directory, struct error *error)
{
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++) {
		const struct made_directory *entry = &directories[i];
		int failed = directory_make(directory, entry->path, entry->mode, entry->owner);
		if (made_check(failed, entry->path, error) < 0)
			return -1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		int failed = file_make(directory, files[i].path, 0644, 0, files[i].text);
		if (made_check(failed, files[i].path, error) < 0)
			return -1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		int failed = symlinkat(links[i].text, directory, links[i].path) < 0 ? -errno : 0;
		if (made_check(failed, links[i].path, error) < 0)
			return -1;
	}
	return made_check(venv_make(host_root, directory), "opt/venv", error);
}
