/* `caisson receipt` fetches the receipt of a command. `caisson verify` checks one offline, with
 * only the file and a public key: it recomputes every hash of its entries, follows the links
 * between them, compares the statements with the entries, and checks the signature. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/cli.h"
#include "proto/receipt.h"

#define FILE_SIZE_MAX (64 * 1024 * 1024)
#define PROBLEMS_MAX 20

static struct {
	const char *key, *output_file, *stream;
} options;

struct check {
	json_t *problems; /* texts */
	size_t entries;
};

PRINTF_LIKE(2, 3) static void check_add_problem(struct check *check, const char *format, ...)
{
	char text[512];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (json_array_size(check->problems) < PROBLEMS_MAX)
		json_array_append_new(check->problems, json_string(text));
}

/* Lower case only: a receipt has one form. */
static bool hex_to_bytes(const char *text, uint8_t *bytes, size_t size)
{
	if (!text || strlen(text) != 2 * size || strspn(text, "0123456789abcdef") != 2 * size)
		return false;
	for (size_t i = 0; i < size; i++) {
		char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};
		bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
	return true;
}

/* --- The chain --- */

static bool details_pack(const json_t *details, struct buffer *packed)
{
	for (size_t i = 0; i < json_array_size(details); i++) {
		json_t *pair = json_array_get(details, i);
		for (size_t j = 0; j < 2; j++) {
			const json_t *text = json_array_get(pair, j);
			if (!json_is_string(text) || json_array_size(pair) != 2 ||
			    buffer_append(packed, json_string_value(text),
					  json_string_length(text) + 1) < 0)
				return false;
		}
	}
	return json_is_array(details);
}

static bool entry_is_well_formed(const json_t *entry)
{
	const json_t *exec = json_object_get(entry, "exec_id");
	return json_is_object(entry) && json_object_size(entry) == 8 &&
	       json_is_integer(json_object_get(entry, "number")) &&
	       json_is_string(json_object_get(entry, "kind")) &&
	       json_is_string(json_object_get(entry, "actor")) &&
	       (json_is_string(exec) || json_is_null(exec));
}

static void check_entry(struct check *check, const json_t *entry, size_t at, const char *sandbox,
			uint8_t previous[ACTIVITY_HASH_SIZE])
{
	DONE_BUFFER struct buffer packed = BUFFER(FILE_SIZE_MAX);
	uint8_t hash[ACTIVITY_HASH_SIZE], made[ACTIVITY_HASH_SIZE];
	uint64_t wall;
	struct activity_entry fields = {.sandbox = sandbox};
	if (!entry_is_well_formed(entry) ||
	    text_to_u64(member_text(entry, "time_ns"), 0, INT64_MAX, &wall) < 0 ||
	    !hex_to_bytes(member_text(entry, "previous"), fields.previous, sizeof(hash)) ||
	    !hex_to_bytes(member_text(entry, "hash"), hash, sizeof(hash)) ||
	    !details_pack(json_object_get(entry, "details"), &packed)) {
		check_add_problem(check, "chain: entry %zu of the receipt is not well-formed",
				  at + 1);
		return;
	}
	long long number = (long long)member_integer(entry, "number");
	fields.number = (uint64_t)number;
	fields.wall = (int64_t)wall;
	fields.kind = member_text(entry, "kind");
	fields.actor = member_text(entry, "actor");
	fields.exec = member_text(entry, "exec_id");
	fields.details = packed.data;
	fields.details_size = packed.size;
	activity_hash(&fields, made);
	if (memcmp(made, hash, sizeof(hash)) != 0)
		check_add_problem(
		    check, "chain: the hash of entry %lld does not match what it says", number);
	if (memcmp(fields.previous, previous, sizeof(hash)) != 0)
		check_add_problem(check, "chain: entry %lld is not linked to %s", number,
				  at == 0 ? "the anchor" : "the one before it");
	memcpy(previous, hash, sizeof(hash));
	check->entries++;
}

static void check_chain(struct check *check, const json_t *receipt)
{
	const json_t *chain = json_object_get(receipt, "chain");
	const json_t *entries = json_object_get(chain, "entries");
	const char *sandbox = member_text(json_object_get(receipt, "sandbox"), "id");
	uint8_t previous[ACTIVITY_HASH_SIZE];
	if (!hex_to_bytes(member_text(chain, "anchor"), previous, sizeof(previous)) ||
	    json_array_size(entries) == 0) {
		check_add_problem(check, "chain: it has no anchor or no entries");
		return;
	}
	int64_t first = member_integer(json_array_get(entries, 0), "number");
	for (size_t i = 0; i < json_array_size(entries); i++) {
		const json_t *entry = json_array_get(entries, i);
		check_entry(check, entry, i, sandbox, previous);
		if (member_integer(entry, "number") != first + (int64_t)i)
			check_add_problem(
			    check, "chain: entry %zu of the receipt does not have number %" PRId64,
			    i + 1, first + (int64_t)i);
	}
}

/* --- The statements, against the entries --- */

static const char *entry_detail(const json_t *entry, const char *key)
{
	const json_t *details = json_object_get(entry, "details");
	for (size_t i = 0; i < json_array_size(details); i++) {
		const json_t *pair = json_array_get(details, i);
		const char *name = json_string_value(json_array_get(pair, 0));
		if (name && strcmp(name, key) == 0)
			return json_string_value(json_array_get(pair, 1));
	}
	return NULL;
}

/* A member (text, number or null) must match the entry's detail. */
static void check_member(struct check *check, const char *what, const json_t *object,
			 const char *member, const char *said)
{
	const json_t *value = json_object_get(object, member);
	char number[24];
	const char *text = json_string_value(value);
	if (json_is_integer(value)) {
		snprintf(number, sizeof(number), "%" PRId64, (int64_t)json_integer_value(value));
		text = number;
	}
	bool same = said ? text && strcmp(text, said) == 0 : json_is_null(value);
	if (!same)
		check_add_problem(check, "%s.%s does not match the entries", what, member);
}

static void check_files(struct check *check, const json_t *receipt, const char *name,
			const json_t *entries)
{
	const json_t *files = json_object_get(receipt, name);
	size_t at = 0;
	for (size_t i = 0; i < json_array_size(entries); i++) {
		const json_t *entry = json_array_get(entries, i);
		const char *kind = member_text(entry, "kind");
		if (strcmp(kind, "file.written") != 0 && strcmp(kind, "file.changed") != 0 &&
		    strcmp(kind, "file.removed") != 0)
			continue;
		const json_t *file = json_array_get(files, at++);
		if (!file || strcmp(member_text(file, "kind"), kind) != 0 ||
		    member_integer(file, "number") != member_integer(entry, "number") ||
		    !json_equal(json_object_get(file, "details"),
				json_object_get(entry, "details")))
			check_add_problem(check, "%s[%zu] does not match the entries", name,
					  at - 1);
	}
	if (at != json_array_size(files))
		check_add_problem(check, "%s has more than the entries say", name);
}

static void check_output(struct check *check, const json_t *receipt, const json_t *end,
			 const char *stream)
{
	const json_t *output = json_object_get(json_object_get(receipt, "output"), stream);
	char what[32], key[32];
	snprintf(what, sizeof(what), "output.%s", stream);
	snprintf(key, sizeof(key), "%s_bytes", stream);
	check_member(check, what, output, "bytes", entry_detail(end, key));
	snprintf(key, sizeof(key), "%s_sha256", stream);
	check_member(check, what, output, "sha256", entry_detail(end, key));
}

static void check_fields(struct check *check, const json_t *receipt)
{
	const json_t *exec = json_object_get(receipt, "exec");
	const json_t *entries = json_object_get(json_object_get(receipt, "chain"), "entries");
	size_t count = json_array_size(entries);
	const json_t *start = json_array_get(entries, 0);
	const json_t *end = count > 0 ? json_array_get(entries, count - 1) : NULL;
	const char *id = member_text(exec, "id");
	bool failed = strcmp(member_text(end, "kind"), "exec.failed") == 0;
	bool first = strcmp(member_text(receipt, "format"), "caisson-receipt/1") == 0;
	if (!first && strcmp(member_text(receipt, "format"), "caisson-receipt/2") != 0)
		check_add_problem(check, "format is neither caisson-receipt/1 nor /2");
	if (strcmp(member_text(start, "kind"), "exec.started") != 0 || !*id ||
	    strcmp(member_text(start, "exec_id"), id) != 0)
		check_add_problem(check, "exec: the first entry is not the start of this command");
	if ((strcmp(member_text(end, "kind"), "exec.ended") != 0 && !failed) ||
	    strcmp(member_text(end, "exec_id"), id) != 0)
		check_add_problem(check, "exec: the last entry is not the end of this command");
	check_member(check, "exec", exec, "command", entry_detail(start, "command"));
	check_member(check, "exec", exec, "actor", member_text(start, "actor"));
	check_member(check, "exec", exec, "outcome",
		     failed ? "failed" : entry_detail(end, "outcome"));
	check_member(check, "exec", exec, "error", entry_detail(end, "error"));
	static const char *const numbers[] = {"exit_code", "signal", "duration_us", "cpu_us"};
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		check_member(check, "exec", exec, numbers[i], entry_detail(end, numbers[i]));
	check_output(check, receipt, end, "stdout");
	check_output(check, receipt, end, "stderr");
	/* The first version did not say whose changes they are. */
	check_files(check, receipt, first ? "file_changes" : "api_file_changes", entries);
}

/* --- The signature --- */

/* Reads --key: 64 digits, or a file with them, alone or as GET /v1/receipts/key answers. */
static int trusted_key_read(uint8_t key[RECEIPT_KEY_SIZE], struct error *error)
{
	char text[1024] = "";
	if (hex_to_bytes(options.key, key, RECEIPT_KEY_SIZE))
		return 0;
	ssize_t size = fd_read_small(AT_FDCWD, options.key, text, sizeof(text));
	if (size < 0)
		return error_set_errno(error, ERROR_USAGE, (int)size, "%s", options.key);
	const char *begin = strstr(text, "\"key\"");
	begin = begin ? strchr(begin + 5, '"') : NULL;
	begin = begin ? begin + 1 : text;
	char digits[2 * RECEIPT_KEY_SIZE + 1] = "";
	snprintf(digits, sizeof(digits), "%.*s", 2 * RECEIPT_KEY_SIZE, begin);
	if (!hex_to_bytes(digits, key, RECEIPT_KEY_SIZE))
		return error_set(error, ERROR_USAGE, "%s holds no public key (64 digits of hex)",
				 options.key);
	return 0;
}

static int check_signature(struct check *check, const json_t *document, struct error *error)
{
	const json_t *signature = json_object_get(document, "signature");
	DONE_BUFFER struct buffer text = BUFFER(FILE_SIZE_MAX);
	uint8_t key[RECEIPT_KEY_SIZE], trusted[RECEIPT_KEY_SIZE], value[RECEIPT_SIGNATURE_SIZE];
	if (options.key && trusted_key_read(trusted, error) < 0)
		return -1;
	if (json_object_size(signature) != 3 ||
	    strcmp(member_text(signature, "algorithm"), "ed25519") != 0 ||
	    !hex_to_bytes(member_text(signature, "key"), key, sizeof(key)) ||
	    !hex_to_bytes(member_text(signature, "value"), value, sizeof(value))) {
		check_add_problem(check, "signature: it is not well-formed");
		return 0;
	}
	if (options.key && memcmp(key, trusted, sizeof(key)) != 0)
		check_add_problem(check,
				  "signature: it was made with another key than the one given");
	if (canonical_json(json_object_get(document, "receipt"), &text) < 0 ||
	    !receipt_verify(key, text.data, text.size, value))
		check_add_problem(check, "signature: it does not match the receipt");
	return 0;
}

/* --- The output --- */

static int file_digest(const char *path, char hex[65], uint64_t *ret_size, struct error *error)
{
	CLOSE_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	uint8_t digest[32];
	static char piece[65536];
	ssize_t got = -1;
	*ret_size = 0;
	bool good = fd >= 0 && context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
	while (good && (got = read(fd, piece, sizeof(piece))) > 0) {
		good = EVP_DigestUpdate(context, piece, (size_t)got) == 1;
		*ret_size += (uint64_t)got;
	}
	int saved = errno;
	good = good && got == 0 && EVP_DigestFinal_ex(context, digest, NULL) == 1;
	EVP_MD_CTX_free(context);
	if (!good)
		return error_set_errno(error, ERROR_USAGE, saved, "%s", path);
	text_hex(digest, sizeof(digest), hex);
	return 0;
}

static int check_output_file(struct check *check, const json_t *receipt, struct error *error)
{
	const char *stream = options.stream ? options.stream : "stdout";
	char hex[65];
	uint64_t size;
	if (!options.output_file)
		return options.stream
			   ? error_set(error, ERROR_USAGE, "--stream needs --output-file")
			   : 0;
	if (strcmp(stream, "stdout") != 0 && strcmp(stream, "stderr") != 0)
		return error_set(error, ERROR_USAGE, "--stream is stdout or stderr");
	if (file_digest(options.output_file, hex, &size, error) < 0)
		return -1;
	const json_t *output = json_object_get(json_object_get(receipt, "output"), stream);
	const char *said = member_text(output, "sha256");
	if (!*said)
		check_add_problem(check, "output.%s: the receipt has no digest of it", stream);
	else if (strcmp(said, hex) != 0)
		check_add_problem(
		    check, "output.%s: the file of %" PRIu64 " bytes is not what was printed",
		    stream, size);
	return 0;
}

/* --- The verb --- */

static int receipt_read(const char *path, json_t **ret_document, struct error *error)
{
	DONE_BUFFER struct buffer text = BUFFER(FILE_SIZE_MAX);
	bool standard = strcmp(path, "-") == 0;
	int opened = standard ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	CLOSE_FD int fd = opened;
	char piece[65536];
	ssize_t got;
	if (!standard && fd < 0)
		return error_set_errno(error, ERROR_USAGE, errno, "%s", path);
	while ((got = read(standard ? STDIN_FILENO : fd, piece, sizeof(piece))) > 0)
		if (buffer_append(&text, piece, (size_t)got) < 0)
			return error_set(error, ERROR_RECEIPT_INVALID, "%s is too long", path);
	if (got < 0)
		return error_set_errno(error, ERROR_USAGE, errno, "%s", path);
	json_error_t where;
	*ret_document = json_loadb(text.size ? text.data : "", text.size,
				   JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
	if (!*ret_document)
		return error_set(error, ERROR_RECEIPT_INVALID, "%s is not JSON: line %d: %s", path,
				 where.line, where.text);
	return 0;
}

static void verified_print(const struct check *check, const json_t *document)
{
	const json_t *receipt = json_object_get(document, "receipt");
	const json_t *exec = json_object_get(receipt, "exec");
	const json_t *sandbox = json_object_get(receipt, "sandbox");
	char code[40] = "";
	/* Anybody can write a receipt and sign it with a key of their own. */
	line_print("verified: exec %s in sandbox %s: %s", member_text(exec, "id"),
		   member_text(sandbox, "id"), member_text(exec, "command"));
	if (json_is_integer(json_object_get(exec, "exit_code")))
		snprintf(code, sizeof(code), " with code %" PRId64,
			 member_integer(exec, "exit_code"));
	line_print("  %s%s, %s to %s, by %s", member_text(exec, "outcome"), code,
		   member_text(exec, "started_at"), member_text(exec, "ended_at"),
		   member_text(exec, "actor"));
	printf("  chain: %zu entries, every hash and link\n", check->entries);
	if (options.output_file)
		line_print("  output: %s is what was printed", options.output_file);
	line_print("  signed by %s", member_text(json_object_get(document, "signature"), "key"));
	if (!options.key)
		printf(
		    "  (the key is the receipt's own: compare it, or give the one you trust with "
		    "--key)\n");
}

static void check_report(const struct check *check, const char *path, const json_t *document)
{
	size_t count = json_array_size(check->problems);
	if (cli_json) {
		json_t *answer = json_pack("{s:b, s:O, s:I}", "verified", count == 0, "problems",
					   check->problems, "entries", (json_int_t)check->entries);
		json_print(answer);
		json_decref(answer);
	} else if (count == 0) {
		verified_print(check, document);
	} else {
		fprintf(stderr, "caisson verify: %s does not hold:\n", path);
		for (size_t i = 0; i < count; i++)
			error_print("  %s", json_string_value(json_array_get(check->problems, i)));
	}
}

static int verify_run(struct client *client UNUSED, int argc, char **argv, struct error *error)
{
	struct check check = {.problems = json_array()};
	json_t *document = NULL;
	if (argc != 2)
		return error_set(error, ERROR_USAGE, "verify needs a receipt's file, or -");
	int result = receipt_read(argv[1], &document, error);
	if (result == 0) {
		const json_t *receipt = json_object_get(document, "receipt");
		if (json_object_size(document) != 2 || !json_is_object(receipt))
			result = error_set(error, ERROR_RECEIPT_INVALID,
					   "%s is not a receipt with its signature; `caisson "
					   "receipt SANDBOX EXEC` prints one",
					   argv[1]);
	}
	if (result == 0) {
		const json_t *receipt = json_object_get(document, "receipt");
		check_chain(&check, receipt);
		check_fields(&check, receipt);
		result = check_signature(&check, document, error);
		if (result == 0)
			result = check_output_file(&check, receipt, error);
		if (result == 0)
			check_report(&check, argv[1], document);
	}
	if (result == 0 && json_array_size(check.problems) > 0)
		result = error_info(ERROR_RECEIPT_INVALID)->exit_code;
	json_decref(document);
	json_decref(check.problems);
	return result;
}

static const struct option_spec verify_specs[] = {
    {"key", 0, OPTION_TEXT, &options.key, "FILE|HEX",
     "the public key that must have signed it (default: the receipt's own)"},
    {"output-file", 0, OPTION_TEXT, &options.output_file, "FILE",
     "compare this with what the command printed"},
    {"stream", 0, OPTION_TEXT, &options.stream, "STREAM", "stdout or stderr (default: stdout)",
     .words = "stdout,stderr"},
    {0},
};

const struct verb verb_verify = {
    .name = "verify",
    .arguments = "[options] FILE",
    .summary = "Check the receipt of a command, offline",
    .help = "Exits with 0 when everything holds; else says what does not, and exits with 1.\n"
	    "Needs no daemon. docs/activity.md describes receipts.\n\n"
	    "  caisson receipt mybox EXEC > receipt.json\n"
	    "  caisson verify --key key.json receipt.json",
    .options = verify_specs,
    .configuration = CONFIGURATION_NEVER,
    .run = verify_run,
};

/* --- Receipt --- */

static int receipt_run(struct client *client, int argc, char **argv, struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(4096);
	json_t *answer = NULL;
	if (argc == 2 && strcmp(argv[1], "key") == 0) {
		if (client_call(client, "GET", "/v1/receipts/key", NULL, NULL, 0, &answer, error) <
		    0)
			return -1;
	} else {
		if (argc != 3)
			return error_set(error, ERROR_USAGE,
					 "receipt needs a sandbox and an exec; `caisson activity` "
					 "shows which there are");
		if (sandbox_path(&path, argv[1], "/execs/", error) < 0)
			return -1;
		if (buffer_append_encoded(&path, argv[2]) < 0 ||
		    buffer_append_text(&path, "/receipt") < 0)
			return error_set(error, ERROR_USAGE, "an argument is too long");
		if (client_call(client, "GET", path.data, NULL, NULL, 0, &answer, error) < 0)
			return -1;
	}
	json_print(answer);
	json_decref(answer);
	return 0;
}

const struct verb verb_receipt = {
    .name = "receipt",
    .json = "errors as JSON; a receipt is JSON",
    .sandboxes = true,
    .execs = true,
    .arguments = "SANDBOX EXEC | key",
    .summary = "Print the signed receipt of a command that has ended",
    .help = "What ran, where, under which limits, what it printed (as digests), with the entries\n"
	    "of the activity that prove it. `caisson receipt key` prints the public key.\n\n"
	    "  caisson receipt mybox EXEC > receipt.json\n"
	    "  caisson receipt key > key.json\n"
	    "  caisson verify --key key.json receipt.json",
    .run = receipt_run,
};
