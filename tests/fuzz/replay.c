/* Runs a fuzz target over files given as arguments: the corpus as a test, without libFuzzer. Each
 * file is also given cut short at every eighth of its length, since truncation is what peers do. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
	FILE *file = fopen(path, "rb");
	if (!file) {
		perror(path);
		return 1;
	}
	static uint8_t room[1 << 20];
	size_t size = fread(room, 1, sizeof(room), file);
	fclose(file);
	for (int eighth = 0; eighth <= 8; eighth++) {
		/* A copy of exactly that size, so that reading past it is seen by ASan. */
		size_t part = size * (size_t)eighth / 8;
		uint8_t *copy = malloc(part ? part : 1);
		if (!copy)
			return 1;
		for (size_t i = 0; i < part; i++)
			copy[i] = room[i];
		LLVMFuzzerTestOneInput(copy, part);
		free(copy);
	}
	return 0;
}

int main(int argc, char **argv)
{
	int failed = 0;
	for (int i = 1; i < argc; i++)
		failed |= replay(argv[i]);
	printf("replayed %d inputs\n", argc - 1);
	return failed;
}
