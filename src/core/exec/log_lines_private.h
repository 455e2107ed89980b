/* What log_lines.c and log_lines_tail.c share. */
#pragma once

#include "core/core_private.h"
#include "core/exec/log_lines.h"

#define LOG_WINDOW (64 * 1024)
#define LOG_EXEC_TEXT_MAX 1200
#define LOG_EXEC_WORK (32 * 1024) /* opening one more exec costs as much as so many bytes */
#define LOG_ROWS_PER_LOOK 64

/* A command that may still print. */
struct log_entry {
	struct id id;
	uint64_t at[2]; /* the next offset to read */
	bool said_start, said_end;
};

struct log_reader {
	struct core *core;
	struct id sandbox;
	struct log_filter filter;
	bool whole_only;
	struct log_entry *entries; /* the oldest first */
	size_t entry_count, entry_room;
	uint64_t newest; /* the key up to which every exec is an entry, or is finished */
	/* The state of the search for a tail. */
	struct {
		uint64_t key; /* execs before this key are left to search */
		bool inside;  /* of `exec`, at `slot`, `end` */
		struct id exec;
		int slot;
		uint64_t end;
		bool running_added;
	} tail;
	/* The bytes of the stream that are being scanned. */
	char *window;
	size_t window_size;
	uint64_t window_offset;
	struct id window_exec;
	enum exec_stream window_stream;
	char text[LOG_EXEC_TEXT_MAX];
};

bool log_matches(const struct log_reader *reader, const char *text, size_t size);
bool log_wants(const struct log_reader *reader, const struct exec_row *row);
/* The text about an exec's start or end. */
size_t log_exec_text(const struct exec_row *row, bool end, char text[LOG_EXEC_TEXT_MAX]);
/* NULL if there are too many. */
struct log_entry *log_entry_add(struct log_reader *reader, const struct id *id);

/* The next exec of the sandbox after or before a key, if it matches the filter. */
struct log_exec_search {
	const struct log_reader *reader;
	struct id id;
	uint64_t key; /* of the last exec that was looked at; 0: there is none */
	bool found;   /* it matches */
	uint32_t looked;
};
/* Looks at a bounded number of execs; 0, or -1 with error. */
NODISCARD int log_exec_find(struct log_reader *reader, uint64_t key, bool older,
			    struct log_exec_search *ret_search, int64_t *work, struct error *error);
