/* The manifest of a backup: whatever it says, what comes out of it keeps to the names and sizes
 * that a restore relies on. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/state/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct state_manifest *manifest = calloc(1, sizeof(*manifest));
	struct error error;
	if (!manifest)
		abort();
	if (state_manifest_parse(manifest, (const char *)data, size, &error) == 0) {
		for (size_t i = 0; i < manifest->file_count; i++)
			if (!state_path_valid(manifest->files[i].path) ||
			    manifest->files[i].data > manifest->files[i].size)
				abort();
		for (size_t i = 0; i < manifest->sandbox_count; i++)
			if (!id_valid(manifest->sandboxes[i].id.text) ||
			    manifest->sandboxes[i].slot >= STATE_SLOTS)
				abort();
	}
	state_manifest_done(manifest);
	free(manifest);
	return 0;
}
