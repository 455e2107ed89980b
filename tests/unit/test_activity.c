/* The parts of the activity: the hash of an entry, what is left out of it, how kinds are named, the
 * rows and their pruning, transactions. */
#include <dirent.h>
#include <unistd.h>

#include "base/config.h"
#include "base/text.h"
#include "core/activity/activity.h"
#include "core/activity/receipt.h"
#include "store/activity.h"
#include "test.h"

TEST_MAIN

#define PATTERNS CONFIG_REDACT_DEFAULT

static void check_redacted_by(const char *patterns, const char *text, const char *expected)
{
	DONE_BUFFER struct buffer made = BUFFER(4096);
	activity_redact(patterns, text, &made);
	CHECK_TEXT(buffer_text(&made), expected);
}

static void check_redacted(const char *text, const char *expected)
{
	check_redacted_by(PATTERNS, text, expected);
}

TEST(names_that_are_secret)
{
	check_redacted("MY_TOKEN=abc make", "MY_TOKEN=*** make");
	check_redacted("my-token=abc", "my-token=***");
	check_redacted("A_PASSWORD='a b c' x", "A_PASSWORD='***' x");
	check_redacted("--password hunter2 --verbose", "--password *** --verbose");
	check_redacted("--password --verbose", "--password --verbose");
	check_redacted("--api-key=xyz&b=c", "--api-key=***&b=c");
	check_redacted("{\"client_secret\": \"xyz\", \"a\": 1}",
		       "{\"client_secret\": \"***\", \"a\": 1}");
	check_redacted("-H 'X-Api-Key: xyz'", "-H 'X-Api-Key: ***'");
	check_redacted("TOKEN=", "TOKEN=");
	check_redacted("cat /etc/passwd", "cat /etc/passwd");
	check_redacted("ls tokenizer.py", "ls tokenizer.py");
	check_redacted("TOKEN=a SECRET=b", "TOKEN=*** SECRET=***");
	check_redacted("", "");
}

/* As the secret's name or its form says, and nothing else: in a text and as arguments. */
static const char *const hidden[][2] = {
    {"--token abc", "--token ***"},
    {"--api-key abc", "--api-key ***"},
    {"--apikey abc", "--apikey ***"},
    {"--aws-secret-access-key abc", "--aws-secret-access-key ***"},
    {"GITHUB_TOKEN=abc", "GITHUB_TOKEN=***"},
    {"TOKEN2=abc", "TOKEN2=***"},
    {"TOKEN_GITHUB=abc", "TOKEN_GITHUB=***"},
    {"authtoken=abc", "authtoken=***"},
    {"accessToken=abc", "accessToken=***"},
    {"stripeKey=abc", "stripeKey=***"},
    {"PGPASSWORD=abc", "PGPASSWORD=***"},
    {"spring.datasource.password=abc", "spring.datasource.password=***"},
    {"API_TOKENS=a,b", "API_TOKENS=***"},
    {"SECRET_KEY_BASE=abc", "SECRET_KEY_BASE=***"},
    {"AWS_ACCESS_KEY_ID=abc", "AWS_ACCESS_KEY_ID=***"},
    {"https://host/x?key=abc", "https://host/x?key=***"},
    {"X-Token:abc", "X-Token:***"},
    {"Authorization: Basic abc", "Authorization: Basic ***"},
    {"Proxy-Authorization: abc", "Proxy-Authorization: ***"},
    {"Bearer abcdefgh01234567", "Bearer ***"},
    {"STRIPE_KEY=abc", "STRIPE_KEY=***"},
    {"--signing-key abc", "--signing-key ***"},
    {"secretKey=abc", "secretKey=***"},
    {"apiKey: abc", "apiKey: ***"},
    {"MY_API_KEY_2=abc", "MY_API_KEY_2=***"},
    {"aws.access.key=abc", "aws.access.key=***"},
    {"https://host/x?a=1&key=abc&b=2#c", "https://host/x?a=1&key=***&b=2#c"},
    {"https://host/x?access_token=abc&b=2", "https://host/x?access_token=***&b=2"},
    {"DB_PASS=abc", "DB_PASS=***"},
    {"dbPass=abc", "dbPass=***"},
    {"PASS=abc", "PASS=***"},
    {"MYSQL_PWD=abc", "MYSQL_PWD=***"},
    {"--pass abc", "--pass ***"},
    {"--pass=abc", "--pass=***"},
    {"--db-pass abc", "--db-pass ***"},
};
static const char *const kept[] = {
    "--max-tokens 100",
    "--tokenizer gpt2",
    "max_tokens=100",
    "maxTokens=100",
    "max_token_len=512",
    "--eos-token-id 2",
    "--token-limit 100",
    "TOKENIZERS_PARALLELISM=false",
    "--keyword x",
    "KEYMAP=us",
    "monkey=1",
    "--sort-key name",
    "--public-key abc",
    "--token-file /run/token",
    "GITHUB_TOKEN_PATH=/run/token",
    "--password-stdin registry",
    "--no-password me",
    "/etc/passwd: Permission denied",
    "cat: secret: No such file or directory",
    "server.key: No such file or directory",
    "fix the token: it expires",
    "a bearer of news",
    "basic usage",
    "level: basic usage",
    "token == other",
    "key=abc",
    "--key 2,2",
    "--key=2,2",
    "key: abc",
    "{\"Key\": \"Name\", \"Value\": 3}",
    "[{\"key\": \"name\", \"value\": 3}]",
    "d={1:2}; print(max(d, key=d.get), 1)",
    "sorted(d.items(), key=lambda x: x[1])",
    "keyboard=abc",
    "sortKey=abc",
    "KEY_COUNT=3",
    "https://host/key=abc",
    "https://host/x?monkey=abc&keys=1",
    "PWD=/home",
    "OLDPWD=/home",
    "OLD_PWD=/home",
    "--pwd /home",
    "--passthrough abc",
    "-pass 1",
    "--pass-count 3",
    "PASS: all tests",
    "bypass=1",
    "compass=north",
    "PASSES=3",
    "-u 1000:1000",
    "--user 1000:1000",
};

TEST(only_secrets_are_left_out)
{
	for (size_t i = 0; i < ARRAY_SIZE(hidden) + ARRAY_SIZE(kept); i++) {
		size_t rest = i - MIN(i, ARRAY_SIZE(hidden));
		const char *text = i < ARRAY_SIZE(hidden) ? hidden[i][0] : kept[rest];
		const char *expected = i < ARRAY_SIZE(hidden) ? hidden[i][1] : kept[rest];
		char copy[128], *save, *argv[16] = {"run"};
		size_t argc = 1;
		check_redacted(text, expected);
		check_redacted(expected, expected);
		DONE_BUFFER struct buffer made = BUFFER(4096);
		snprintf(copy, sizeof(copy), "%s", text);
		/* A header and a sentence are one argument, a flag and its value are two. */
		if (*copy != '-')
			argv[argc++] = copy;
		else
			for (char *word = strtok_r(copy, " ", &save); word;
			     word = strtok_r(NULL, " ", &save))
				argv[argc++] = word;
		activity_redact_command(PATTERNS, (const char *const *)argv, argc, &made);
		CHECK_TEXT(buffer_text(&made) + strlen("run "), expected);
	}
	check_redacted("wget --header=PRIVATE-TOKEN: glpat-abc",
		       "wget --header=PRIVATE-TOKEN: ***");
	check_redacted("curl -H X-Api-Key: s3cret https://host",
		       "curl -H X-Api-Key: *** https://host");
	check_redacted("echo -n fix the token: it expires", "echo -n fix the token: it expires");
	check_redacted("python t.py --max-tokens 100 --tokenizer gpt2 --token abc x",
		       "python t.py --max-tokens 100 --tokenizer gpt2 --token *** x");
	check_redacted("password = \"a b\" # x", "password = \"***\" # x");
}

/* A value in a program ends with it, not with the argument or the quote. */
TEST(values_of_code)
{
	static const struct {
		const char *program, *expected;
	} cases[] = {
	    {"f(token=abc, b=1)", "f(token=***, b=1)"},
	    {"f(b=1, token=get(\"a, b\")[0])", "f(b=1, token=***)"},
	    {"f(token=\"a b\", b=1)", "f(token=\"***\", b=1)"},
	    {"f(token=b\"a b\", b=1)", "f(token=***, b=1)"},
	    {"f(token=\"a\"+\"b\", b=1)", "f(token=***, b=1)"},
	    {"x=[f(token=abc), 1]", "x=[f(token=***), 1]"},
	    {"x={\"token\": abc}; y=2", "x={\"token\": ***}; y=2"},
	    {"x={\"token\": \"a b\", \"c\": 1}", "x={\"token\": \"***\", \"c\": 1}"},
	    {"x={\"token\":\"a\\\"b c\"}", "x={\"token\":\"***\"}"},
	    {"f({apiKey: k, b: 2})", "f({apiKey: ***, b: 2})"},
	    {"f([\"X-Token: a b\", c])", "f([\"X-Token: ***\", c])"},
	    {"f([\"Authorization: token x\"], 1)", "f([\"Authorization: ***\"], 1)"},
	    {"token=abc; print(1)", "token=***; print(1)"},
	    {"import os\ntoken=abc\nprint(1)", "import os\ntoken=***\nprint(1)"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *argv[] = {"/usr/bin/python3.11", "-c", cases[i].program};
		char shell[256], expected[256];
		DONE_BUFFER struct buffer made = BUFFER(4096);
		snprintf(shell, sizeof(shell), "cd x && python3 -c '%s' | cat", cases[i].program);
		snprintf(expected, sizeof(expected), "cd x && python3 -c '%s' | cat",
			 cases[i].expected);
		check_redacted(shell, expected);
		check_redacted(expected, expected);
		activity_redact_command(PATTERNS, argv, 3, &made);
		CHECK_TEXT(buffer_text(&made) + strlen("/usr/bin/python3.11 -c "),
			   cases[i].expected);
	}
	/* Elsewhere a value may have any character. */
	check_redacted("echo 'TOKEN=a, b' \"${X} TOKEN=a,b c\"",
		       "echo 'TOKEN=***' \"${X} TOKEN=***\"");
	check_redacted("bash -c \"curl -H 'X-Token: a b' x\"",
		       "bash -c \"curl -H 'X-Token: ***' x\"");
}

/* `-u USER:PASSWORD`: only of programs that take it, and only the password. */
TEST(passwords_behind_users)
{
	static const char *const cases[][2] = {
	    {"curl -u me:hunter2 https://host", "curl -u me:*** https://host"},
	    {"curl -ume:hunter2 x", "curl -ume:*** x"},
	    {"/usr/bin/curl -sSu me@a.b:hunter2 x", "/usr/bin/curl -sSu me@a.b:*** x"},
	    {"curl --user=me:hunter2 x", "curl --user=me:*** x"},
	    {"curl -x p:80 --proxy-user me:hunter2 x", "curl -x p:80 --proxy-user me:*** x"},
	    {"curl 'https://h/?a=1&b=2' -u 'me:hunter 2' x",
	     "curl 'https://h/?a=1&b=2' -u 'me:***' x"},
	    {"curl -u \"me:hunter 2\" x", "curl -u \"me:***\" x"},
	    {"curl -u me:'hunter 2' x", "curl -u me:*** x"},
	    {"curl x \\\n -u me:hunter2", "curl x \\\n -u me:***"},
	    {"bash -c 'curl -u me:hunter2' x", "bash -c 'curl -u me:***' x"},
	    {"bash -c \"curl -u \\\"me:a b\\\" x\"", "bash -c \"curl -u \\\"me:***\\\" x\""},
	    {"sudo wget -u me:hunter2 x", "sudo wget -u me:*** x"},
	    {"http -a me:hunter2 host/x", "http -a me:*** host/x"},
	    {"curl -u me https://host", "curl -u me https://host"},
	    {"curl -u me: https://host", "curl -u me: https://host"},
	    {"curl -a https://host", "curl -a https://host"},
	    {"wget -U 'Mozilla (rv:109)' x", "wget -U 'Mozilla (rv:109)' x"},
	    {"docker run -u 1000:1000 curl", "docker run -u 1000:1000 curl"},
	    {"curl x; docker run -u 1000:1000 y", "curl x; docker run -u 1000:1000 y"},
	    {"curl x | docker run --user=1:2 y", "curl x | docker run --user=1:2 y"},
	    {"sudo -u me:staff true", "sudo -u me:staff true"},
	};
	static const struct {
		const char *argv[5], *expected;
	} commands[] = {
	    {{"curl", "-u", "me:hunter 2", "x"}, "curl -u me:*** x"},
	    {{"sudo", "/bin/curl", "-su", "me:hunter2", "x"}, "sudo /bin/curl -su me:*** x"},
	    {{"curl", "-ume:hunter 2", "x"}, "curl -ume:*** x"},
	    {{"curl", "--user=me:hunter 2", "x"}, "curl --user=me:*** x"},
	    {{"curl", "-u", "me", "https://host"}, "curl -u me https://host"},
	    {{"docker", "run", "-u", "1:2", "curl"}, "docker run -u 1:2 curl"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		check_redacted(cases[i][0], cases[i][1]);
		check_redacted(cases[i][1], cases[i][1]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		DONE_BUFFER struct buffer made = BUFFER(4096);
		size_t count = 0;
		while (count < 5 && commands[i].argv[count])
			count++;
		activity_redact_command(PATTERNS, commands[i].argv, count, &made);
		CHECK_TEXT(buffer_text(&made), commands[i].expected);
	}
}

TEST(patterns_of_names)
{
	check_redacted_by("PIN", "PIN=1 MY_PIN=2 SPINE=3 pin-code=4",
			  "PIN=*** MY_PIN=*** SPINE=3 pin-code=***");
	check_redacted_by("*PIN*", "SPINE=3 x=4", "SPINE=*** x=4");
	check_redacted_by("PIN-CODE", "MY_PIN_CODE=1 PIN=2 CODE=3", "MY_PIN_CODE=*** PIN=2 CODE=3");
	check_redacted_by("!*-FILE,PIN", "PIN=1 PIN_FILE=2", "PIN=*** PIN_FILE=2");
	check_redacted_by("! !!", "PIN=1", "PIN=1");
	check_redacted_by("*-PIN", "PIN=1 MY_PIN=2 myPin=3 SPIN=4",
			  "PIN=1 MY_PIN=*** myPin=*** SPIN=4");
	check_redacted_by("?PIN", "PIN=1 --pin 2 x?pin=3 x?my-pin=4 y&pin=5",
			  "PIN=1 --pin 2 x?pin=*** x?my-pin=4 y&pin=5");
	check_redacted_by("--PIN", "PIN=1 --pin 2 --pin=3 -pin 4 --my-pin 5",
			  "PIN=1 --pin *** --pin=*** -pin 4 --my-pin 5");
	check_redacted_by("PIN=", "PIN=1 --pin 2 MY_PIN=3 \"pin\": 4, pin: 5",
			  "PIN=*** --pin 2 MY_PIN=3 \"pin\": ***, pin: 5");
	check_redacted_by("? -- =", "PIN=1 x?pin=2 --pin 3", "PIN=1 x?pin=2 --pin 3");
}

TEST(tokens_headers_and_urls)
{
	check_redacted("csn_0123456789abcdef", "csn_***");
	check_redacted("xcsn_0123456789abcdef/y", "xcsn_***/y");
	check_redacted("csn_short", "csn_short");
	check_redacted("Authorization: Bearer abc.def-x", "Authorization: Bearer ***");
	check_redacted("authorization: basic dXNlcg==", "authorization: basic ***");
	check_redacted("TOKEN: Bearer abc", "TOKEN: Bearer ***");
	check_redacted("git clone https://me:pass@host/x", "git clone https://me:***@host/x");
	check_redacted("https://ghp_abc@host/x", "https://***@host/x");
	check_redacted("https://host/a@b:c", "https://host/a@b:c");
	/* Nothing configured: these are left out all the same. */
	DONE_BUFFER struct buffer made = BUFFER(4096);
	activity_redact("", "csn_0123456789abcdef PASSWORD=x", &made);
	CHECK_TEXT(buffer_text(&made), "csn_*** PASSWORD=x");
}

TEST(values_of_a_shell)
{
	static const char *const cases[][2] = {
	    {"TOKEN=aaaa,bbbb true", "TOKEN=*** true"},
	    {"PASSWORD=$'hun\\'ter 2' true", "PASSWORD=*** true"},
	    {"PASSWORD='a'\"b c\"d e", "PASSWORD=*** e"},
	    {"PASSWORD=a\\ b c", "PASSWORD=*** c"},
	    {"export API_KEY=\"ab\\\"cd e\" ; true", "export API_KEY=\"***\" ; true"},
	    {"export API_KEY='ab',cd e", "export API_KEY=*** e"},
	    {"TOKEN=$(echo abc) make", "TOKEN=*** make"},
	    {"TOKEN=`echo abc` make", "TOKEN=*** make"},
	    {"--password 'two words' x", "--password '***' x"},
	    {"TOKEN=x\302\240y true", "TOKEN=*** true"},
	    {"env 'PASSWORD=a b c' true", "env 'PASSWORD=***' true"},
	    {"echo '{\"token\":\"a\\\"b c\",\"d\":1}' x", "echo '{\"token\":\"***\",\"d\":1}' x"},
	    {"echo \"{\\\"token\\\":\\\"a b\\\"}\" x", "echo \"{\\\"token\\\":\\\"***\\\"}\" x"},
	    {"curl -H 'A-Token: a=b; c=d' x", "curl -H 'A-Token: ***' x"},
	    {"# don't\necho 'TOKEN=a b' x", "# don't\necho 'TOKEN=***' x"},
	    {"echo it\\'s 'TOKEN=a b' x", "echo it\\'s 'TOKEN=***' x"},
	    {"PASSWORD='basic a b' x", "PASSWORD='***' x"},
	    {"a='b' TOKEN='c d' e='f'", "a='b' TOKEN='***' e='f'"},
	    {"it's TOKEN=a b", "it's TOKEN=*** b"},
	    {"TOKEN=\"a b", "TOKEN=\"***"},
	    {"TOKEN='", "TOKEN='"},
	    {"\\csn_0123456789abcdef", "\\csn_***"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		check_redacted(cases[i][0], cases[i][1]);
		check_redacted(cases[i][1], cases[i][1]);
	}
}

TEST(commands_by_their_arguments)
{
	static const struct {
		const char *argv[5], *expected;
	} cases[] = {
	    {{"true", "--password", "two words", "x"}, "true --password *** x"},
	    {{"true", "--password", "-x y", "z"}, "true --password *** z"},
	    {{"true", "--password", "--verbose"}, "true --password --verbose"},
	    {{"true", "--token=multi word secret", "x"}, "true --token=*** x"},
	    {{"env", "PASSWORD=a b 'c", "true"}, "env PASSWORD=*** true"},
	    {{"env", "PASSWORD=\"a\" b", "true"}, "env PASSWORD=*** true"},
	    {{"echo", "{\"token\":\"a\\\"b c\"}", "x"}, "echo {\"token\":\"***\"} x"},
	    {{"echo", "it's", "TOKEN=a b", "c"}, "echo it's TOKEN=*** c"},
	    {{"/bin/sh", "-c", "TOKEN=a make all", "x"}, "/bin/sh -c TOKEN=*** make all x"},
	    {{"bash", "-lc", "PASSWORD=$'a b' true"}, "bash -lc PASSWORD=*** true"},
	    {{"a", "", "b"}, "a  b"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		DONE_BUFFER struct buffer made = BUFFER(4096);
		size_t count = 0;
		while (count < 5 && cases[i].argv[count])
			count++;
		activity_redact_command(PATTERNS, cases[i].argv, count, &made);
		CHECK_TEXT(buffer_text(&made), cases[i].expected);
	}
	DONE_BUFFER struct buffer joined = BUFFER(4096), script = BUFFER(4096), cut = BUFFER(8);
	activity_redact_joined(PATTERNS, "env PASSWORD=a b true", &joined);
	CHECK_TEXT(buffer_text(&joined), "env PASSWORD=***");
	DONE_BUFFER struct buffer header = BUFFER(4096);
	activity_redact_joined(PATTERNS, "curl -H Authorization: token x", &header);
	CHECK_TEXT(buffer_text(&header), "curl -H Authorization: ***");
	activity_redact_joined(PATTERNS, "/bin/sh -c PASSWORD=a true", &script);
	CHECK_TEXT(buffer_text(&script), "/bin/sh -c PASSWORD=*** true");
	activity_redact_command(PATTERNS, cases[0].argv, 4, &cut);
	CHECK_INT(cut.size, 8);
}

TEST(text_that_does_not_fit_is_cut)
{
	DONE_BUFFER struct buffer made = BUFFER(8);
	activity_redact(PATTERNS, "0123456789 TOKEN=abc", &made);
	CHECK_INT(made.size, 8);
}

TEST(the_hash_is_as_documented)
{
	/* Made with the Python of docs/activity.md. */
	static const char details[] = "command\0echo hi\0tty\0yes";
	struct activity_entry entry = {
	    .sandbox = "abcdefghijklmnop",
	    .number = 3,
	    .wall = 1794757684175079424,
	    .kind = "exec.started",
	    .actor = "local:0",
	    .exec = "",
	    .details = details,
	    .details_size = sizeof(details),
	};
	uint8_t hash[ACTIVITY_HASH_SIZE];
	char hex[2 * ACTIVITY_HASH_SIZE + 1];
	memset(entry.previous, 0x5a, sizeof(entry.previous));
	activity_hash(&entry, hash);
	text_hex(hash, sizeof(hash), hex);
	CHECK_TEXT(hex, "a6c93d6f305c024fba4432d68d2c2d0af4f07aa8b7c842beb3687e4d7c0b114a");
	/* Each part counts. */
	entry.number++;
	uint8_t other[ACTIVITY_HASH_SIZE];
	activity_hash(&entry, other);
	CHECK(memcmp(hash, other, sizeof(hash)) != 0);
}

TEST(kinds)
{
	char list[ACTIVITY_KIND_LIST_MAX];
	struct error error;
	CHECK_INT(
	    activity_kinds_parse("exec.ended,sandbox.ended,exec.ended", list, sizeof(list), &error),
	    0);
	CHECK_TEXT(list, ",21,8,");
	CHECK_INT(activity_kinds_parse("exec,exec.*", list, sizeof(list), &error), 0);
	CHECK_TEXT(list, ",20,21,22,23,24,");
	CHECK_INT(activity_kinds_parse("sandbox,exec,file,code,budget,activity", list, sizeof(list),
				       &error),
		  0);
	CHECK_INT(activity_kinds_parse("exe", list, sizeof(list), &error), -1);
	CHECK_INT(activity_kinds_parse("exec,,", list, sizeof(list), &error), -1);
	CHECK_TEXT(activity_kind_name(ACTIVITY_FILE_WRITTEN), "file.written");
	CHECK(!activity_kind_name(0));
}

TEST(canonical_form)
{
	json_t *json =
	    json_loads("{ \"b\": [1, -2, true, null], \"a\": \"\\u001f\\n\\\"\\u00e9/\\u007f\", "
		       "\"aa\": {} }",
		       0, NULL);
	DONE_BUFFER struct buffer text = BUFFER(1024);
	CHECK_INT(canonical_json(json, &text), 0);
	CHECK_TEXT(buffer_text(&text),
		   "{\"a\":\"\\u001f\\n\\\"\xc3\xa9/\x7f\",\"aa\":{},\"b\":[1,-2,true,null]}");
	json_decref(json);
	json = json_loads("[1.5]", 0, NULL);
	CHECK_INT(canonical_json(json, &text), -1);
	json_decref(json);
}

/* --- the store --- */

static char directory[64];

static struct store *open_store(void)
{
	struct store *store = NULL;
	struct error error = {0};
	snprintf(directory, sizeof(directory), "/tmp/caisson-test-activity-%d", (int)getpid());
	if (store_open(directory, &store, &error) < 0)
		test_fail(__FILE__, __LINE__, "open: %s", error.message);
	return store;
}

static void close_store(struct store *store)
{
	char name[512];
	store_close(store);
	DIR *entries = opendir(directory);
	for (struct dirent *entry; entries && (entry = readdir(entries));) {
		snprintf(name, sizeof(name), "%s/%s", directory, entry->d_name);
		unlink(name);
	}
	if (entries)
		closedir(entries);
	rmdir(directory);
}

static int insert(struct store *store, const char *sandbox, uint64_t number, int64_t wall)
{
	struct activity_row row = {.workspace = (char *)"w",
				   .number = number,
				   .wall = wall,
				   .kind = 20,
				   .actor = (char *)"system"};
	struct error error;
	uint64_t sequence;
	CHECK_INT(id_parse(sandbox, &row.sandbox), 0);
	row.hash[0] = (uint8_t)number;
	return store_activity_insert(store, &row, &sequence, &error);
}

static bool count_rows(void *data, const struct activity_row *row UNUSED)
{
	++*(int *)data;
	return true;
}

static int rows_of(struct store *store, const char *sandbox)
{
	struct id id;
	struct error error;
	int count = 0;
	CHECK_INT(id_parse(sandbox, &id), 0);
	struct activity_query query = {.sandbox = &id, .limit = 100000};
	CHECK_INT(store_activity_each(store, &query, count_rows, &count, &error), 0);
	return count;
}

#define BOX_A "aaaaaaaaaaaaaaaa"
#define BOX_B "bbbbbbbbbbbbbbbb"

static bool keep_last(void *data, const struct id *sandbox, uint64_t number)
{
	return strcmp(sandbox->text, BOX_A) == 0 && number == *(uint64_t *)data;
}

TEST(old_entries_go_and_the_newest_of_a_living_one_stays)
{
	struct store *store = open_store();
	struct error error;
	uint64_t last = 300, cursor = 0, pruned, first, number;
	uint8_t hash[32];
	bool more = true;
	CHECK_INT(store_transaction_begin(store, &error), 0);
	for (uint64_t i = 1; i <= 300; i++)
		CHECK_INT(insert(store, BOX_A, i, 1000), 0);
	for (uint64_t i = 1; i <= 10; i++)
		CHECK_INT(insert(store, BOX_B, i, i <= 5 ? 1000 : 3000), 0);
	CHECK_INT(store_transaction_end(store, 0, &error), 0);
	while (more)
		CHECK(store_activity_prune_age(store, 2000, &cursor, keep_last, &last, &more,
					       &error) >= 0);
	CHECK_INT(rows_of(store, BOX_A), 1);
	CHECK_INT(rows_of(store, BOX_B), 5);
	CHECK_INT(store_activity_pruned(store, "w", &pruned, &error), 0);
	CHECK_INT(pruned, 305);
	CHECK_INT(store_activity_pruned(store, "other", &pruned, &error), 0);
	CHECK_INT(pruned, 0);
	struct id box;
	CHECK_INT(id_parse(BOX_A, &box), 0);
	CHECK_INT(store_activity_ends(store, &box, &first, &number, hash, &error), 1);
	CHECK_INT(first, 300);
	CHECK_INT(number, 300);
	CHECK_INT(hash[0], 300 % 256);
	CHECK_INT(id_parse(BOX_B, &box), 0);
	CHECK_INT(store_activity_prune_sandbox(store, "w", &box, 9, &error), 3);
	CHECK_INT(rows_of(store, BOX_B), 2);
	close_store(store);
}

/* Some entries at a time, wherever those that are wanted are: what was found, in how many calls. */
static int walk(struct store *store, struct activity_query query, int *ret_calls)
{
	struct error error;
	int found = 0;
	bool more = true;
	query.ret_seen = &query.after;
	query.ret_more = &more;
	for (*ret_calls = 0; more && *ret_calls < 100; ++*ret_calls)
		CHECK_INT(store_activity_each(store, &query, count_rows, &found, &error), 0);
	CHECK(!more);
	return found;
}

TEST(a_rare_entry_is_looked_for_some_at_a_time)
{
	struct store *store = open_store();
	struct error error;
	struct id box;
	int calls;
	CHECK_INT(store_transaction_begin(store, &error), 0);
	for (uint64_t i = 1; i <= 50; i++)
		CHECK_INT(insert(store, BOX_A, i, 1000), 0);
	CHECK_INT(insert(store, BOX_B, 1, 1000), 0);
	for (uint64_t i = 51; i <= 65; i++)
		CHECK_INT(insert(store, BOX_A, i, 2000), 0);
	CHECK_INT(store_transaction_end(store, 0, &error), 0);
	CHECK_INT(id_parse(BOX_B, &box), 0);
	struct activity_query query = {.workspace = "w", .by_sequence = true, .limit = 100};
	CHECK_INT(walk(store, query, &calls), 66);
	CHECK_INT(calls, 1);
	query.scan = 10;
	CHECK_INT(walk(store, query, &calls), 66);
	CHECK_INT(calls, 7);
	query.sandbox = &box;
	CHECK_INT(walk(store, query, &calls), 1);
	CHECK_INT(calls, 7);
	query.sandbox = NULL;
	query.kinds = ",21,2,";
	CHECK_INT(walk(store, query, &calls), 0);
	CHECK_INT(calls, 7);
	query.kinds = ",1,20,";
	query.since_wall = 2000;
	query.limit = 4;
	CHECK_INT(walk(store, query, &calls), 15);
	/* In a sandbox's order, in both directions. */
	CHECK_INT(id_parse(BOX_A, &box), 0);
	query = (struct activity_query){.sandbox = &box, .limit = 100, .scan = 10};
	for (int i = 0; i < 2; i++) {
		query.descending = i > 0;
		query.since_wall = 0;
		CHECK_INT(walk(store, query, &calls), 65);
		CHECK_INT(calls, 7);
		query.since_wall = 3000;
		CHECK_INT(walk(store, query, &calls), 0);
		CHECK_INT(calls, 7);
	}
	close_store(store);
}

TEST(a_number_is_given_once_and_a_transaction_is_all_or_nothing)
{
	struct store *store = open_store();
	struct error error;
	CHECK_INT(insert(store, BOX_A, 1, 1), 0);
	CHECK_INT(insert(store, BOX_A, 1, 1), 1);
	/* Nested; the inner failure undoes the outer one. */
	CHECK_INT(store_transaction_begin(store, &error), 0);
	CHECK_INT(insert(store, BOX_A, 2, 1), 0);
	CHECK_INT(store_transaction_begin(store, &error), 0);
	CHECK_INT(insert(store, BOX_A, 3, 1), 0);
	CHECK_INT(store_transaction_end(store, -1, &error), -1);
	CHECK_INT(store_transaction_end(store, 0, &error), -1);
	CHECK_INT(rows_of(store, BOX_A), 1);
	CHECK_INT(store_transaction_begin(store, &error), 0);
	CHECK_INT(insert(store, BOX_A, 2, 1), 0);
	CHECK_INT(store_transaction_end(store, 0, &error), 0);
	CHECK_INT(rows_of(store, BOX_A), 2);
	close_store(store);
}

TEST(signatures)
{
	struct store *store = open_store();
	struct core core = {.store = store};
	struct error error;
	uint8_t key[RECEIPT_KEY_SIZE], again[RECEIPT_KEY_SIZE], signature[RECEIPT_SIGNATURE_SIZE];
	uint8_t seed[RECEIPT_KEY_SIZE];
	CHECK_INT(receipt_public_key(&core, key, &error), 0);
	CHECK_INT(receipt_secret_key(&core, seed, &error), 0);
	CHECK_INT(receipt_sign(seed, "text", 4, signature, &error), 0);
	CHECK_INT(receipt_public_key(&core, again, &error), 0);
	CHECK(memcmp(key, again, sizeof(key)) == 0);
	CHECK(receipt_verify(key, "text", 4, signature));
	CHECK(!receipt_verify(key, "texu", 4, signature));
	signature[5] ^= 1;
	CHECK(!receipt_verify(key, "text", 4, signature));
	close_store(store);
}

TEST(cursors)
{
	static const char *const bad[] = {"", "-1", "x", "1x", " 1", "9223372036854775808"};
	char cursor[ACTIVITY_CURSOR_MAX];
	struct error error;
	uint64_t place;
	for (uint64_t number = 1; number <= INT64_MAX / 10; number *= 10) {
		activity_cursor_print(number, cursor);
		CHECK_INT(activity_cursor_parse("it", cursor, 1, &place, &error), 0);
		CHECK_INT(place, number);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CHECK_INT(activity_cursor_parse("it", bad[i], 0, &place, &error), -1);
		CHECK_INT(error.kind, ERROR_INVALID);
		CHECK_TEXT(error.message, "it must be a number from 0 to 9223372036854775807");
	}
	CHECK_INT(activity_cursor_parse("it", "0", 0, &place, &error), 0);
	CHECK_INT(activity_cursor_parse("it", "0", 1, &place, &error), -1);
}
