/* Reads the records of running guests. See live_guests.h. */
#include "tier/live_guests.h"

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/text.h"

#define RECORD_ROOM 1024
#define PATH_ROOM 512

/* The number after "\nKEY "; 0 when the key is missing. */
static uint64_t record_read_number(const char *text, const char *key)
{
	const char *place = strstr(text, key);
	return place ? strtoull(place + strlen(key), NULL, 10) : 0;
}

int live_guest_open(int guests, const char *name, struct process *ret_process)
{
	char path[320], text[RECORD_ROOM];
	int result = text_format(path, sizeof(path), "%s/boot", name);
	if (result < 0)
		return result;
	ssize_t length = fd_read_small(guests, path, text, sizeof(text));
	if (length < 0)
		return (int)length;
	uint64_t pid = record_read_number(text, "\npid "),
		 start_time = record_read_number(text, "\nstart_time ");
	if (pid == 0 || pid > INT32_MAX || start_time == 0)
		return -ESRCH;
	return process_open((pid_t)pid, start_time, ret_process);
}

bool live_guests_any(const char *runtime, bool (*counts)(const void *data, const char *id),
		     const void *data)
{
	char path[PATH_ROOM];
	bool found = false;
	if (text_format(path, sizeof(path), "%s/guests", runtime) < 0)
		return false;
	DIR *entries = opendir(path);
	for (struct dirent *entry; entries && !found && (entry = readdir(entries));) {
		struct process process = PROCESS_NONE;
		if (entry->d_name[0] == '.' || !counts(data, entry->d_name) ||
		    live_guest_open(dirfd(entries), entry->d_name, &process) < 0)
			continue;
		found = process_alive(&process);
		process_done(&process);
	}
	if (entries)
		closedir(entries);
	return found;
}
