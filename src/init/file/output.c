/* Gathers records into DATA frames; a record is never split. Called by list, glob and grep;
 * waits for credit. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "init/file/internal.h"

int file_output_open(struct file_output *output, struct operation *operation)
{
	output->operation = operation;
	output->size = 0;
	output->data = malloc(FILE_CHUNK_MAX);
	return output->data ? 0 : -ENOMEM;
}

void file_output_done(struct file_output *output)
{
	free(output->data);
	output->data = NULL;
}

int file_output_flush(struct file_output *output)
{
	if (output->size == 0)
		return 0;
	size_t size = output->size;
	output->size = 0;
	return operation_send(output->operation, output->data, size);
}

int file_output_add(struct file_output *output, const void *record, size_t size)
{
	if (size > FILE_CHUNK_MAX)
		return -EMSGSIZE;
	if (size > FILE_CHUNK_MAX - output->size) {
		int result = file_output_flush(output);
		if (result < 0)
			return result;
	}
	memcpy(output->data + output->size, record, size);
	output->size += size;
	return 0;
}

void file_prefix_of(struct bytes path, struct file_prefix *ret_prefix)
{
	size_t size = MIN(path.size, (size_t)GUEST_PATH_MAX - 1);
	if (size > 0)
		memcpy(ret_prefix->text, path.data, size);
	/* "dir//" and "dir/." become "dir/"; "." and "" become "". */
	while (size > 0 && (ret_prefix->text[size - 1] == '/' ||
			    (ret_prefix->text[size - 1] == '.' &&
			     (size == 1 || ret_prefix->text[size - 2] == '/'))))
		size--;
	if (size > 0 || (path.size > 0 && path.data[0] == '/'))
		ret_prefix->text[size++] = '/';
	ret_prefix->text[size] = '\0';
	ret_prefix->size = size;
}
