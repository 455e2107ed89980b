/* See suggestions.h. Called when a verb or an option is unknown, to make the error's text. No I/O.
 */
#include "cli/suggestions.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "cli/cli.h"

#define WORD_MAX 32

/* Names that other programs use for a verb. */
static const struct {
	const char *word, *meant;
} verb_habits[] = {
    {"ps", "ls"},
    {"list", "ls"},
    {"delete", "rm"},
    {"remove", "rm"},
    {"destroy", "rm"},
    {"terminate", "rm"},
    {"unpause", "resume"},
    {"new", "create"},
    {"up", "create"},
    {"launch", "run"},
    {"enter", "shell"},
    {"ssh", "shell"},
    {"sh", "shell"},
    {"bash", "shell"},
    {"connect", "attach"},
    {"copy", "cp"},
    {"push", "cp"},
    {"upload", "cp"},
    {"download", "cp"},
    {"log", "logs"},
    {"stats", "top"},
    {"info", "inspect"},
    {"show", "inspect"},
    {"status", "ls"},
    {"images", "templates"},
    {"update", "set"},
    {"daemon", "serve"},
    {"server", "serve"},
    {"start-server", "serve"},
    {"tokens", "token"},
    {"check", "doctor"},
    {"backup", "state"},
    {"restore", "state"},
    {"renew", "extend"},
    {"exe", "run"},
};

/* Names whose equivalent here is more than a verb. */
static const struct {
	const char *word, *hint;
} verb_hints[] = {
    {"kill",
     "here it is `caisson jobs --kill ID SANDBOX` for a command, `caisson stop SANDBOX` for a "
     "sandbox"},
    {"pull", "there are no images yet; `caisson templates` lists what a sandbox can begin with"},
    {"rename", "here it is `caisson set --name NEW SANDBOX`"},
};

#define NO_BACKGROUND                                                                              \
	"a command in the background is `caisson create`, then `caisson exec -d SANDBOX -- "       \
	"COMMAND`"

static const struct {
	const char *word, *hint;
} option_habits[] = {
    {"rm", "only a sandbox of `run` is removed when its command ends"},
    {"interactive", "standard input and a terminal are passed on by themselves"},
    {"i", "--isolation"},
    {"t", "--template"},
    {"n", "--name"},
    {"d", NO_BACKGROUND},
    {"detach", NO_BACKGROUND},
    {"l", "--language, --listen"},
    {"k", "--kind, --key"},
    {"p", "sandboxes have no network yet, so that there is no port to publish"},
    {"publish", "sandboxes have no network yet, so that there is no port to publish"},
    {"network", "sandboxes have no network yet"},
    {"net", "sandboxes have no network yet"},
    {"image", "there are no images yet; --template chooses what is in it"},
    {"privileged", "no sandbox is; --nested-userns allows user namespaces inside"},
    {"cpus", "--cpu"},
    {"workdir", "--cwd"},
    {"w", "--cwd"},
    {"mount", "--volume HOST:GUEST[:ro|rw|cow]"},
    {"entrypoint", "the command stands behind --"},
    {"pids-limit", "--pids"},
    {"label-file", "--label NAME=VALUE"},
    {"ttl", "--timeout"},
};

/* The number of letters to change, insert, delete or swap; the words are short. */
static unsigned words_distance(const char *one, size_t one_size, const char *other)
{
	unsigned rows[3][WORD_MAX + 1];
	size_t other_size = strlen(other);
	if (one_size > WORD_MAX || other_size > WORD_MAX)
		return WORD_MAX;
	for (size_t j = 0; j <= other_size; j++)
		rows[0][j] = (unsigned)j;
	for (size_t i = 1; i <= one_size; i++) {
		unsigned *row = rows[i % 3], *above = rows[(i - 1) % 3];
		const unsigned *two_above = rows[(i + 1) % 3];
		row[0] = (unsigned)i;
		for (size_t j = 1; j <= other_size; j++) {
			unsigned changed = above[j - 1] + (one[i - 1] != other[j - 1]);
			row[j] = MIN(changed, MIN(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && one[i - 1] == other[j - 2] &&
			    one[i - 2] == other[j - 1])
				row[j] = MIN(row[j], two_above[j - 2] + 1);
		}
	}
	return rows[one_size % 3][other_size];
}

/* Two changed letters make a short word a different word. */
static bool distance_is_near(unsigned letters, size_t size)
{
	return letters <= (size < 2 ? 0u : size < 6 ? 1u : 2u);
}

/* Suggests all verbs with the smallest distance: "; did you mean `caisson run` or `caisson rm`?" */
static void near_verbs_suggest(const char *word, char *text, size_t room)
{
	unsigned best = WORD_MAX;
	size_t used = 0;
	for (const struct verb *const *verb = verbs; *verb; verb++) {
		unsigned letters = words_distance(word, strlen(word), (*verb)->name);
		if ((*verb)->hidden || letters > best || !distance_is_near(letters, strlen(word)))
			continue;
		if (letters < best)
			used = 0;
		best = letters;
		used += (size_t)snprintf(text + used, room - used, "%s `caisson %s`",
					 used ? " or" : "; did you mean", (*verb)->name);
		if (used >= room - 1)
			break;
	}
	if (used > 0 && used < room - 1)
		snprintf(text + used, room - used, "?");
}

void verb_suggest(const char *word, char *text, size_t room)
{
	text[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(verb_hints); i++)
		if (strcmp(word, verb_hints[i].word) == 0)
			snprintf(text, room, "; %s", verb_hints[i].hint);
	for (size_t i = 0; i < ARRAY_SIZE(verb_habits); i++)
		if (strcmp(word, verb_habits[i].word) == 0)
			snprintf(text, room, "; here it is `caisson %s`", verb_habits[i].meant);
	if (!text[0])
		near_verbs_suggest(word, text, room);
	if (!text[0])
		snprintf(text, room, "; `caisson help` lists them");
}

void option_suggest(const struct option_spec *options, const char *word, char *text, size_t room)
{
	const char *name = word + strspn(word, "-");
	size_t size = strcspn(name, "=");
	bool is_long = word[0] == '-' && word[1] == '-';
	unsigned best = WORD_MAX;
	text[0] = '\0';
	/* In `-it`, the first unknown letter. */
	if (!is_long)
		size = MIN(size, (size_t)1);
	for (size_t i = 0; i < ARRAY_SIZE(option_habits); i++) {
		if (strlen(option_habits[i].word) == size &&
		    memcmp(option_habits[i].word, name, size) == 0) {
			snprintf(text, room, ": %s", option_habits[i].hint);
			return;
		}
	}
	const struct option_spec *option;
	for (struct option_walk walk = {is_long ? options : NULL}; (option = option_next(&walk));) {
		unsigned letters = words_distance(name, size, option->name);
		if (letters >= best || !distance_is_near(letters, size))
			continue;
		best = letters;
		snprintf(text, room, "; did you mean --%s?", option->name);
	}
}

bool word_looks_like_image(const char *word)
{
	static const char *const images[] = {"alpine", "busybox", "debian", "fedora",
					     "golang", "nginx",   "node",   "python",
					     "redis",  "rust",    "ubuntu"};
	for (size_t i = 0; i < ARRAY_SIZE(images); i++)
		if (strcmp(word, images[i]) == 0)
			return true;
	return word[0] != '/' && word[0] != '.' && strchr(word, ':');
}
