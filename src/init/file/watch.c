/* Watch: reports changes of a file or below a directory, until it is cancelled. Called by
 * operation_run(); waits for events and for credit.
 *
 * The kernel's queue is the buffer. While the client takes nothing, nothing is read from the
 * queue: it merges repeated events and, when it is full (fs.inotify.max_queued_events), reports
 * an overflow, which becomes WATCH_OVERFLOW. So memory is bounded, and a loss is always
 * reported.
 *
 * A new directory is watched as soon as its event is read. Entries that were made in it before
 * that are found by reading the directory, and reported as created. Such entries may be in the
 * queue too: their names are remembered (as many as fit) until the queue is empty, so that each
 * is reported once. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/file/internal.h"

#define EVENTS_SIZE (64 * 1024)
#define WATCHES_MAX 65536
#define FOUND_SIZE (128 * 1024)
#define CANCEL_LOOK 256
#define WATCH_MASK                                                                                 \
	(IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB |             \
	 IN_DELETE_SELF | IN_MOVE_SELF)

struct watched {
	int descriptor; /* the kernel assigns ascending numbers, so the array is sorted */
	char *path;     /* below the root, with a slash at its end, or ""; NULL: dropped */
};

struct watch {
	struct operation *operation;
	int inotify;
	bool recursive;
	int root; /* its watch descriptor */
	struct file_prefix prefix;
	char named[GUEST_PATH_MAX]; /* the root, as the client wrote it */
	struct file_path path;      /* and as it is opened */
	struct watched *watches;
	size_t count, alive, room;
	/* Paths that were found by reading directories, each with its NUL. */
	char *found;
	size_t found_size, found_room;
	uint32_t moved_cookie; /* of the directory that was moved away last */
	bool root_gone;
};

static void watch_done(struct watch *watch)
{
	for (size_t i = 0; i < watch->count; i++)
		free(watch->watches[i].path);
	free(watch->watches);
	free(watch->found);
	fd_close(&watch->inotify);
}

static int event_send(struct watch *watch, enum watch_kind kind, const char *path)
{
	uint8_t record[3 * GUEST_PATH_MAX + 8];
	struct writer writer = writer_on(record, sizeof(record));
	write_u8(&writer, (uint8_t)kind);
	write_text(&writer, path);
	int64_t size = writer_finish(&writer);
	/* The path is too long for a request: the event cannot be reported precisely. */
	if (size < 0) {
		writer = writer_on(record, sizeof(record));
		write_u8(&writer, WATCH_OVERFLOW);
		write_text(&writer, watch->named);
		size = (int64_t)writer.size;
	}
	return operation_send(watch->operation, record, (size_t)size);
}

static int path_join(const struct watch *watch, const char *directory, const char *name,
		     char path[3 * GUEST_PATH_MAX])
{
	size_t directory_size = strlen(directory), name_size = strlen(name);
	size_t size = watch->prefix.size;
	if (size + directory_size + name_size >= 3 * GUEST_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(path, watch->prefix.text, size);
	memcpy(path + size, directory, directory_size);
	memcpy(path + size + directory_size, name, name_size + 1);
	return 0;
}

static struct watched *watch_find(struct watch *watch, int descriptor)
{
	size_t low = 0, high = watch->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (watch->watches[middle].descriptor < descriptor)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == watch->count || watch->watches[low].descriptor != descriptor)
		return NULL;
	return watch->watches[low].path ? &watch->watches[low] : NULL;
}

static void watch_drop(struct watch *watch, struct watched *watched, bool tell_kernel)
{
	if (tell_kernel)
		(void)!inotify_rm_watch(watch->inotify, watched->descriptor);
	free(watched->path);
	watched->path = NULL;
	watch->alive--;
	if (watch->alive * 2 > watch->count || watch->count < 64)
		return;
	size_t kept = 0;
	for (size_t i = 0; i < watch->count; i++) {
		if (watch->watches[i].path)
			watch->watches[kept++] = watch->watches[i];
	}
	watch->count = kept;
}

/* A directory was moved away: its path, and those of all directories below it, are not valid any
 * more. */
static void watch_drop_below(struct watch *watch, const char *directory, const char *name)
{
	size_t directory_size = strlen(directory), name_size = strlen(name);
	for (size_t i = watch->count; i-- > 0;) {
		if (i >= watch->count)
			continue;
		const char *path = watch->watches[i].path;
		if (path && strncmp(path, directory, directory_size) == 0 &&
		    strncmp(path + directory_size, name, name_size) == 0 &&
		    path[directory_size + name_size] == '/')
			watch_drop(watch, &watch->watches[i], true);
	}
}

static int watch_store(struct watch *watch, int descriptor, const char *path, size_t size)
{
	struct watched *known = watch_find(watch, descriptor);
	char *copy = malloc(size + 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, path, size);
	copy[size] = '\0';
	/* The same directory is watched again under another path: the newer path counts. */
	if (known) {
		free(known->path);
		known->path = copy;
		return 0;
	}
	if (watch->count == watch->room) {
		size_t room = MAX(64, 2 * watch->room);
		void *watches = realloc(watch->watches, room * sizeof(*watch->watches));
		if (!watches) {
			free(copy);
			return -ENOMEM;
		}
		watch->watches = watches;
		watch->room = room;
	}
	watch->watches[watch->count++] = (struct watched){descriptor, copy};
	watch->alive++;
	return 0;
}

/* Adds a watch by descriptor, so that it is for the opened directory even if its name leads
 * elsewhere by now. -ENOSPC: the kernel's limit of watches is reached. */
static int watch_add(struct watch *watch, int fd, const char *path, size_t size)
{
	if (watch->alive >= WATCHES_MAX)
		return -ENOSPC;
	char place[32];
	file_descriptor_path(fd, place);
	int descriptor = inotify_add_watch(watch->inotify, place, WATCH_MASK | IN_EXCL_UNLINK);
	if (descriptor < 0)
		return -errno;
	int result = watch_store(watch, descriptor, path, size);
	return result < 0 ? result : descriptor;
}

static void found_remember(struct watch *watch, const char *path)
{
	size_t size = strlen(path) + 1;
	if (!watch->found) {
		watch->found_room = FOUND_SIZE;
		watch->found = malloc(watch->found_room);
	}
	if (!watch->found || size > watch->found_room - watch->found_size)
		return;
	memcpy(watch->found + watch->found_size, path, size);
	watch->found_size += size;
}

static bool found_contains(const struct watch *watch, const char *path)
{
	for (size_t at = 0; at < watch->found_size; at += strlen(watch->found + at) + 1) {
		if (strcmp(watch->found + at, path) == 0)
			return true;
	}
	return false;
}

static int watch_add_entry(struct watch *watch, struct file_walk *walk, const char *directory,
			   bool tell)
{
	char path[3 * GUEST_PATH_MAX], below[3 * GUEST_PATH_MAX];
	size_t directory_size = strlen(directory);
	int result = 0;
	if (directory_size + walk->path_size + strlen(walk->name) + 2 >= sizeof(below))
		return 0;
	memcpy(below, directory, directory_size);
	memcpy(below + directory_size, walk->path, walk->path_size + 1);
	if (tell && path_join(watch, below, walk->name, path) == 0) {
		found_remember(watch, path);
		result = event_send(watch, WATCH_CREATED, path);
	}
	if (result < 0 || walk->type != DT_DIR)
		return result;
	int fd CLOSE_FD = file_walk_open_entry(walk);
	if (fd < 0)
		return 0;
	struct stat stat;
	if (fstat(fd, &stat) < 0 ||
	    (stat.st_dev != walk->levels[walk->depth - 1].device && file_is_kernel_tree(fd)))
		return 0;
	result = file_walk_enter(walk, &fd);
	if (result == 0) {
		size_t size = directory_size + walk->path_size;
		memcpy(below + directory_size, walk->path, walk->path_size + 1);
		result = watch_add(watch, walk->levels[walk->depth - 1].fd, below, size);
	}
	/* It is gone already, or cannot be read. */
	if (result == -ENOENT || result == -EACCES)
		result = 0;
	return MIN(result, 0);
}

/* Watches every directory below `directory` (with a slash at its end, or ""); `tell`: reports
 * all entries as created. Takes over the descriptor, which is watched already. */
static int watch_add_below(struct watch *watch, int *fd, const char *directory, bool tell)
{
	struct file_walk walk DONE_WALK = {.directory = -1};
	int result = file_walk_open(&walk, fd);
	for (uint64_t seen = 1; result == 0; seen++) {
		int event = file_walk_next(&walk);
		if (event == WALK_END || event == -ESTALE)
			break;
		if (event == WALK_ENTRY)
			result = watch_add_entry(watch, &walk, directory, tell);
		if (seen % CANCEL_LOOK == 0 && operation_cancelled(watch->operation))
			result = -ECANCELED;
	}
	return result;
}

/* A directory has appeared in a watched one. */
static int watch_add_directory(struct watch *watch, const char *directory, const char *name,
			       bool tell)
{
	char below[3 * GUEST_PATH_MAX], path[3 * GUEST_PATH_MAX];
	size_t directory_size = strlen(directory), name_size = strlen(name);
	if (directory_size + name_size + 2 > sizeof(below) ||
	    path_join(watch, directory, name, path) < 0)
		return 0;
	memcpy(below, directory, directory_size);
	memcpy(below + directory_size, name, name_size);
	memcpy(below + directory_size + name_size, "/", 2);
	/* The kernel's path of the root, since the client's may be relative. */
	struct file_path root;
	struct failure ignored;
	struct bytes named = {(const uint8_t *)path, strlen(path)};
	if (file_path_of(named, &root, &ignored) < 0)
		return 0;
	int fd CLOSE_FD = open(root.text, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return 0;
	int result = watch_add(watch, fd, below, strlen(below));
	return result < 0 ? result : watch_add_below(watch, &fd, below, tell);
}

static int event_watch_kind(uint32_t mask)
{
	return mask & IN_CREATE       ? WATCH_CREATED
	       : mask & IN_MODIFY     ? WATCH_MODIFIED
	       : mask & IN_DELETE     ? WATCH_REMOVED
	       : mask & IN_MOVED_FROM ? WATCH_RENAMED_FROM
	       : mask & IN_MOVED_TO   ? WATCH_RENAMED_TO
	       : mask & IN_ATTRIB     ? WATCH_ATTRIBUTES
				      : -1;
}

/* An event of the root itself, without a name. Events of directories below come from their
 * parents. */
static int event_handle_root(struct watch *watch, uint32_t mask)
{
	if (mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT)) {
		watch->root_gone = true;
		return event_send(watch, WATCH_REMOVED, watch->named);
	}
	int kind = event_watch_kind(mask);
	return kind < 0 ? 0 : event_send(watch, (enum watch_kind)kind, watch->named);
}

static int event_handle_directory(struct watch *watch, const struct inotify_event *event,
				  const char *directory)
{
	/* A copy, since the watch's path may be freed below. */
	char here[3 * GUEST_PATH_MAX];
	size_t size = strlen(directory);
	if (size >= sizeof(here))
		return 0;
	memcpy(here, directory, size + 1);
	if (event->mask & IN_MOVED_FROM) {
		watch->moved_cookie = event->cookie;
		watch_drop_below(watch, here, event->name);
		return 0;
	}
	if (event->mask & (IN_CREATE | IN_MOVED_TO)) {
		/* Moved within the tree: its contents are not new. */
		bool known = (event->mask & IN_MOVED_TO) && event->cookie == watch->moved_cookie;
		return watch_add_directory(watch, here, event->name, !known);
	}
	return 0;
}

/* Events of new directories may be lost: looks for all directories again, so that nothing is
 * missed from here on. Watching a directory twice changes nothing. */
static int event_handle_overflow(struct watch *watch)
{
	int result = event_send(watch, WATCH_OVERFLOW, watch->named);
	if (result < 0 || !watch->recursive)
		return result;
	int directory CLOSE_FD =
	    open(watch->path.text, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	return directory < 0 ? 0 : watch_add_below(watch, &directory, "", false);
}

static int event_handle(struct watch *watch, const struct inotify_event *event)
{
	if (event->mask & IN_Q_OVERFLOW)
		return event_handle_overflow(watch);
	struct watched *watched = watch_find(watch, event->wd);
	if (!watched)
		return 0;
	if (event->len == 0 && event->wd == watch->root)
		return event_handle_root(watch, event->mask);
	if (event->mask & IN_IGNORED) {
		watch_drop(watch, watched, false);
		return 0;
	}
	int kind = event_watch_kind(event->mask);
	if (event->len == 0 || kind < 0)
		return 0;
	char path[3 * GUEST_PATH_MAX];
	if (path_join(watch, watched->path, event->name, path) < 0)
		return event_send(watch, WATCH_OVERFLOW, watch->named);
	/* It was found by reading the directory: already reported and, if it is a directory,
	 * watched. */
	if (kind == WATCH_CREATED && found_contains(watch, path))
		return 0;
	int result = event_send(watch, (enum watch_kind)kind, path);
	if (result == 0 && watch->recursive && (event->mask & IN_ISDIR))
		result = event_handle_directory(watch, event, watched->path);
	return result;
}

static int events_read(struct watch *watch)
{
	static uint8_t events[EVENTS_SIZE] __attribute__((aligned(8)));
	ssize_t got = read(watch->inotify, events, sizeof(events));
	if (got < 0 && errno == EAGAIN) {
		watch->found_size = 0;
		return 0;
	}
	if (got < 0)
		return errno == EINTR ? 0 : -errno;
	int result = 0;
	for (size_t at = 0; result == 0 && !watch->root_gone && at < (size_t)got;) {
		const struct inotify_event *event = (const struct inotify_event *)(events + at);
		result = event_handle(watch, event);
		at += sizeof(*event) + event->len;
	}
	return result;
}

static int watch_serve(struct watch *watch)
{
	int result = event_send(watch, WATCH_READY, watch->named);
	while (result == 0 && !watch->root_gone) {
		if (operation_cancelled(watch->operation))
			return -ECANCELED;
		result = events_read(watch);
		/* Found names are remembered until the queue is empty: read it once more before
		 * waiting. */
		struct pollfd fds[2] = {
		    {.fd = watch->inotify, .events = POLLIN},
		    {.fd = watch->operation->socket, .events = POLLIN},
		};
		if (result == 0 && !watch->root_gone && watch->found_size == 0 &&
		    poll(fds, 2, -1) < 0 && errno != EINTR)
			result = -errno;
	}
	return result;
}

static int watch_start(struct watch *watch)
{
	bool no_follow = watch->operation->request.flags & FILE_NO_FOLLOW;
	int look CLOSE_FD =
	    open(watch->path.text, O_PATH | O_CLOEXEC | (no_follow ? O_NOFOLLOW : 0));
	struct stat stat;
	if (look < 0 || fstat(look, &stat) < 0)
		return -errno;
	watch->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (watch->inotify < 0)
		return -errno;
	watch->root = watch_add(watch, look, "", 0);
	if (watch->root < 0)
		return watch->root;
	if (!watch->recursive || !S_ISDIR(stat.st_mode))
		return 0;
	int directory CLOSE_FD =
	    open(watch->path.text, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	return directory < 0 ? -errno : watch_add_below(watch, &directory, "", false);
}

int file_watch(struct operation *operation, struct failure *failure)
{
	const struct file_request *request = &operation->request;
	struct watch watch CLEANUP(watch_done) = {
	    .operation = operation,
	    .inotify = -1,
	    .recursive = request->flags & FILE_RECURSIVE,
	};
	struct bytes named = request->path;
	if (named.size == 0)
		named = (struct bytes){(const uint8_t *)".", 1};
	if (file_path_of(named, &watch.path, failure) < 0)
		return -1;
	const char *path = watch.path.text;
	memcpy(watch.named, named.data, named.size);
	file_prefix_of(request->path, &watch.prefix);
	int result = watch_start(&watch);
	if (result == 0)
		result = watch_serve(&watch);
	if (result == -ENOSPC)
		return file_refused(failure, ERROR_RESOURCE_LIMIT, path,
				    "too many directories to watch (fs.inotify.max_user_watches)");
	if (result == -EMFILE)
		return file_refused(failure, ERROR_RESOURCE_LIMIT, path,
				    "too many watches at once (fs.inotify.max_user_instances)");
	if (result < 0)
		return file_failed(failure, result, path);
	return file_refused(failure, ERROR_FILE_NOT_FOUND, path,
			    "was removed or moved away while it was watched");
}
