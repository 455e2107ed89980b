/* Removes secrets from the activity: values of names that look like secrets, bearer tokens, our own
 * tokens, passwords in URLs and those that follow a user's name. Everything else stays readable: a
 * receipt with holes proves little. Called for every value before it is hashed. Pure; one pass over
 * a short text.
 *
 * A command line can hold a secret in any form; these are the usual ones. `***` replaces a secret,
 * so that a reader sees that something was removed. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "core/activity/activity.h"
#include "core/activity/secret_name.h"

#define MASK "***"
#define OWN_TOKEN_MIN 8     /* characters after "csn_" */
#define BEARER_TOKEN_MIN 16 /* "the bearer of news" has no token */

static bool name_character(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

static bool token_is_scheme(const char *text, size_t size)
{
	return (size == 6 && strncasecmp(text, "bearer", 6) == 0) ||
	       (size == 5 && strncasecmp(text, "basic", 5) == 0);
}

static size_t credentials_size(const char *text)
{
	return strcspn(text, " \t\r\n\"'");
}

/* The text after "Bearer" outside of a header is a token or the next word of a sentence. */
static bool token_looks_like_credentials(const char *text)
{
	size_t size = credentials_size(text);
	return size >= BEARER_TOKEN_MIN && strcspn(text, "0123456789=") < size;
}

/* The quote that closes one opened before `at`, or the end of the text. */
static const char *quoted_end(const char *at, char quote, bool escapes)
{
	while (*at && *at != quote)
		at += escapes && at[0] == '\\' && at[1] ? 2 : 1;
	return at;
}

/* The end of a shell word: quoted parts ('…', "…", $'…') and substitutions belong to it. */
static const char *word_end(const char *at)
{
	const char *begin = at;
	while (*at && !strchr(" \t\r\n&;|()<>", *at)) {
		bool dollar = at > begin && at[-1] == '$';
		if (*at == '\'' || *at == '"' || *at == '`')
			at = quoted_end(at + 1, *at, *at != '\'' || dollar);
		else if (at[0] == '$' && at[1] == '(')
			at = quoted_end(at + 2, ')', true);
		else if (at[0] == '\\' && at[1])
			at++;
		at += *at != '\0';
	}
	return at;
}

/* The end of a value in program code: brackets and strings belong to it. A blank ends it only
 * after '='. `quote`: that of the shell around the program; 0: none. */
static const char *code_value_end(const char *at, char quote, char sign)
{
	const char *ends = sign == ':' ? ")]},;\r\n" : ")]},;\r\n \t";
	for (size_t depth = 0; *at && *at != quote; at++) {
		if (depth == 0 && strchr(ends, *at))
			break;
		if (*at == '"' || *at == '\'')
			at = quoted_end(at + 1, *at, true);
		else if (*at == '\\' && at[1])
			at++;
		else if (strchr("([{", *at))
			depth++;
		else if (strchr(")]}", *at))
			depth--;
		if (!*at)
			break;
	}
	return at;
}

/* Whether the scan is in program code: a script for `python3 -c`, or inside of brackets. */
struct code_place {
	bool program;
	size_t depth;
};

struct redact_output {
	struct buffer *buffer;
	const char *text;   /* its beginning */
	const char *from;   /* not yet written */
	const char *resume; /* where the scan continues after a masked value */
	bool to_end;        /* an argument, not a shell's text: a value extends to its end */
	char quote;         /* the scan is inside this quote of the shell; 0: none */
	char string;        /* and inside this one, in an argument or in that quote */
	bool query;         /* and inside the query of a URL */
	struct code_place code, outside; /* outside: of the quote */
	const char *user_options; /* of the command that is read: those before USER:PASSWORD */
};

static void redact_output_put(struct redact_output *output, const char *until, const char *mask)
{
	/* The buffer is as long as the stored value; the caller cuts the rest. */
	size_t size = (size_t)(until - output->from), room;
	room = output->buffer->maximum - output->buffer->size;
	if (buffer_append(output->buffer, output->from, MIN(size, room)) == 0 && size < room)
		(void)!buffer_append_text(output->buffer, mask);
}

static void redact_mask_value(struct redact_output *output, const char *begin, const char *end)
{
	if (end == begin)
		return;
	redact_output_put(output, begin, MASK);
	output->from = output->resume = end;
}

static bool redact_in_code(const struct redact_output *output)
{
	return output->code.program || output->code.depth > 0;
}

/* Is the scan inside a string whose end also ends a value? */
static bool redact_in_string(const struct redact_output *output)
{
	return output->string && (output->quote || redact_in_code(output));
}

/* A quote of the shell begins (`quote`) or ends (0). */
static void redact_turn_quote(struct redact_output *output, char quote, bool program)
{
	if (quote)
		output->outside = output->code;
	output->code = quote ? (struct code_place){.program = program} : output->outside;
	output->quote = quote;
	output->string = 0;
}

struct found_value {
	const char *begin;
	char quote;       /* it is inside this quote of the shell; 0: none */
	char sign;        /* behind the name: '=', ':', or that of an option's value */
	bool name_quoted; /* "name": value */
	bool code;        /* in a program, or in JSON */
};

/* Masks a value. An assigned value is a shell word; a value after a colon is JSON's, or a header's
 * that extends to the closing quote. */
static void redact_mask_from(struct redact_output *output, const struct found_value *found)
{
	const char *value = found->begin, *begin = value, *end, *resume = NULL;
	char quote = found->quote;
	bool quoted = *value == '"' || *value == '\'',
	     escaped = value[0] == '\\' && value[1] == '"';
	if (output->quote && !quote)
		redact_turn_quote(output, 0, false);
	if (output->query) {
		end = value + strcspn(value, "&#\"'` \t\r\n");
	} else if (!found->name_quoted && redact_in_string(output)) {
		const char *outer = quoted_end(value, quote, quote == '"');
		end = quoted_end(value, output->string, true);
		end = quote ? MIN(end, outer) : end;
	} else if (output->to_end && !found->code) {
		end = value + strlen(value);
	} else if (escaped && quote == '"') {
		begin = value + 2;
		end = strstr(begin, "\\\"");
		end = end ? end : value + strlen(value);
		resume = end + (*end ? 2 : 0);
	} else if (quoted) {
		end = quoted_end(value + 1, *value, *value == '"');
		resume = end + (*end != '\0');
		/* More of the same word. */
		const char *word = found->sign == ':' ? resume
				   : found->code      ? code_value_end(value, quote, found->sign)
						      : word_end(value);
		if (word > resume && *resume != quote)
			resume = end = word;
		else
			begin = value + 1;
	} else if (found->code) {
		end = code_value_end(value, quote, found->sign);
	} else {
		end = quote ? quoted_end(value, quote, quote == '"') : word_end(value);
	}
	/* The scan does not see the end of the name's quotes. */
	if (found->name_quoted)
		output->string = 0;
	redact_mask_value(output, begin, end);
	output->resume = resume ? resume : end;
}

/* Is the word that ends before `end` an option, as -H in `curl -H Name: value`? */
static bool text_follows_option(const char *text, const char *end)
{
	const char *word = end;
	while (word > text && !isspace((unsigned char)word[-1]))
		word--;
	return word < end && *word == '-';
}

/* Is the bare `name` before a colon a name in a header, in YAML or the like? In `cat: secret: No
 * such file` and in paths and file names it is not. */
static bool colon_names(const struct redact_output *output, const char *name, size_t size,
			bool blank)
{
	const char *before = name;
	if (memchr(name, '.', size))
		return false;
	while (before > output->text && (before[-1] == ' ' || before[-1] == '\t'))
		before--;
	if (before == output->text || strchr("\r\n\"'{[(,;=", before[-1]))
		return true;
	/* `curl -H X-Token:abc`; with a blank only after an option, because of `fix the token: it
	 * expires`. */
	return before < name && (!blank || text_follows_option(output->text, before));
}

/* Is it followed by a name and a colon as in code: {name: value, name: value}? */
static bool colon_is_of_code(const struct redact_output *output, const char *name)
{
	while (name > output->text && isspace((unsigned char)name[-1]))
		name--;
	return name > output->text && strchr("{(,", name[-1]);
}

/* Finds the name's value. false: it has none. */
static bool name_find_value(const struct redact_output *output, const char *name, size_t size,
			    struct found_value *ret_found)
{
	const char *end = name + size, *value = end + strspn(end, " \t"),
		   *at = end + (end[0] == '\\' && end[1] == '"');
	bool quoted = *at == '"' || *at == '\'', code;
	*ret_found = (struct found_value){.quote = output->quote, .name_quoted = quoted};
	if (quoted)
		ret_found->quote = *at++ == output->quote && at == end + 1 ? 0 : output->quote;
	at += strspn(at, " \t");
	ret_found->sign = *at;
	code = redact_in_code(output) && (output->to_end || output->quote);
	if (*at == '=') {
		const char *behind = at + 1 + strspn(at + 1, " \t");
		/* A comparison assigns nothing; with blanks it is program code: password = "x". */
		if (at[1] == '=')
			return false;
		value = *behind == '"' || *behind == '\'' ? behind : at + 1;
		ret_found->code = code;
	} else if (*at == ':') {
		value = at + 1 + strspn(at + 1, " \t");
		/* "https://", "a::b" and the like are not values. */
		if (*value == '/' || *value == ':' ||
		    (!quoted && !colon_names(output, name, size, value > at + 1)))
			return false;
		ret_found->code = quoted || (code && colon_is_of_code(output, name));
	} else if (*name != '-' || value == end || *value == '-') {
		return false;
	}
	ret_found->begin = value;
	return *value != '\0';
}

/* --- USER:PASSWORD --- */

/* Programs that take it in an option, and these options. */
static const struct {
	const char *program, *options;
} user_programs[] = {
    {"curl", "-u,-U,--user,--proxy-user"},
    {"curlie", "-u,-U,--user,--proxy-user"},
    {"wget", "-u,--user,--proxy-user"},
    {"wget2", "-u,--user,--proxy-user"},
    {"http", "-a,--auth"},
    {"https", "-a,--auth"},
    {"xh", "-a,--auth"},
};

static const char *program_user_options(const char *name, size_t size)
{
	for (size_t i = 0; i < ARRAY_SIZE(user_programs); i++)
		if (strlen(user_programs[i].program) == size &&
		    memcmp(user_programs[i].program, name, size) == 0)
			return user_programs[i].options;
	return NULL;
}

static bool user_option_listed(const char *options, const char *name, size_t size)
{
	for (size_t length; options && *options; options += length + (options[length] == ',')) {
		length = strcspn(options, ",");
		if (length == size && memcmp(options, name, size) == 0)
			return true;
	}
	return false;
}

/* Masks what is behind the colon of USER:PASSWORD. */
static void redact_mask_user(struct redact_output *output, const char *value)
{
	char quote = output->quote;
	bool escaped = value[0] == '\\' && (value[1] == '"' || value[1] == '\'');
	const char *begin = value + escaped, *end;
	if (output->to_end) {
		end = value + strlen(value);
	} else if (*begin && strchr("\"'", *begin) && (escaped || *begin != quote)) {
		end = quoted_end(begin + 1, *begin, false);
		end -= escaped && end[-1] == '\\';
	} else {
		end = quote ? value + strcspn(value, quote == '"' ? " \t\n\"" : " \t\n'")
			    : word_end(value);
	}
	const char *colon = memchr(value, ':', (size_t)(end - value));
	if (colon)
		redact_mask_value(output, colon + 1, end);
}

/* Is USER:PASSWORD the word after this option: `-u`, `-su`, `--user`? */
static bool user_option_takes_next(const char *options, const char *name, size_t size)
{
	const char last[] = {'-', size > 0 ? name[size - 1] : '-', '\0'};
	return user_option_listed(options, name, size) ||
	       (size > 2 && name[0] == '-' && name[1] != '-' &&
		user_option_listed(options, last, 2));
}

/* `-u USER:PASSWORD`, `-uUSER:PASSWORD`, `--user=USER:PASSWORD`. */
static bool redact_look_at_user(struct redact_output *output, const char *name, size_t size)
{
	const char *options = output->user_options, *value = name + size;
	size_t blanks = strspn(value, " \t");
	if (!options || *name != '-' || (name > output->text && !isspace((unsigned char)name[-1])))
		return false;
	if (size > 2 && user_option_listed(options, name, 2))
		value = name + 2;
	else if (blanks > 0 && user_option_takes_next(options, name, size))
		value += blanks;
	else if (*value == '=' && user_option_listed(options, name, size))
		value++;
	else
		return false;
	redact_mask_user(output, value);
	return output->resume > name;
}

/* `NAME=value`, `"name": "value"`, `--name value`, `Authorization: Bearer value`, `Bearer value`.
 */
static void redact_look_at_name(const char *patterns, const char *name,
				struct redact_output *output)
{
	static const char header[] = "*AUTHORIZATION";
	size_t size = 0;
	while (name_character(name[size]))
		size++;
	const char *value = name + size + strspn(name + size, " \t");
	struct found_value found;
	if (token_is_scheme(name, size) && value > name + size &&
	    token_looks_like_credentials(value)) {
		redact_mask_value(output, value, value + credentials_size(value));
		return;
	}
	if (value > name + size && program_user_options(name, size))
		output->user_options = program_user_options(name, size);
	if (redact_look_at_user(output, name, size) || !name_find_value(output, name, size, &found))
		return;
	/* Last, since it takes longest: most names have nothing after them that could be a
	 * value. */
	const struct secret_name secret = {name, size, output->query,
					   found.sign == '=' || found.name_quoted};
	if (!name_is_secret(patterns, &secret) && !name_is_secret(header, &secret))
		return;
	value = found.begin;
	const char *word = value + (*value == '"' || *value == '\'');
	size_t length = 0;
	while (isalpha((unsigned char)word[length]))
		length++;
	if (found.sign == ':' && token_is_scheme(word, length) && word[length] == ' ') {
		word += length + strspn(word + length, " \t");
		redact_mask_value(output, word, word + credentials_size(word));
		return;
	}
	redact_mask_from(output, &found);
}

/* "://user:password@host" and "://token@host". */
static const char *redact_look_at_url(const char *sign, struct redact_output *output)
{
	const char *begin = sign + 3, *end = begin + strcspn(begin, "/ \t\r\n\"'?#<>");
	const char *at = NULL, *colon = memchr(begin, ':', (size_t)(end - begin));
	for (const char *c = begin; c < end; c++)
		at = *c == '@' ? c : at;
	if (!at)
		return begin;
	redact_mask_value(output, colon && colon < at ? colon + 1 : begin, at);
	return at;
}

static const char *redact_look_at_token(const char *text, struct redact_output *output)
{
	const char *end = text + 4;
	while (isalnum((unsigned char)*end) || *end == '_' || *end == '-')
		end++;
	if (end - text < 4 + OWN_TOKEN_MIN)
		return text + 4;
	redact_mask_value(output, text + 4, end);
	return end;
}

/* Does a quotation begin here? An apostrophe does not begin one. */
static bool quote_opens(const char *at)
{
	return (*at == '\'' || *at == '"') && *quoted_end(at + 1, *at, *at == '"');
}

/* The word that ends before `end`, or before the blanks there. */
static const char *word_before(const char *text, const char *end)
{
	while (end > text && isspace((unsigned char)end[-1]))
		end--;
	while (end > text && !isspace((unsigned char)end[-1]))
		end--;
	return end;
}

/* Does a program follow: `python3 -c `? */
static bool program_follows(const char *text, const char *end)
{
	static const char *const names[] = {"python", "node", "perl", "ruby", "php"};
	const char *option = word_before(text, end), *word = word_before(text, option);
	if (*option != '-' || word == option ||
	    (option[1] == '-' && !text_starts(option, "--eval")))
		return false;
	for (const char *c = word; c < option; c++)
		word = *c == '/' ? c + 1 : word;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (text_starts(word, names[i]) && strchr("0123456789. ", word[strlen(names[i])]))
			return true;
	return false;
}

/* Looks at what is not part of a name: quotes, brackets, what separates commands. Returns where to
 * continue. */
static const char *redact_look_at_mark(const char *text, const char *at,
				       struct redact_output *output)
{
	bool marks = !output->string, shell = !output->to_end;
	if (*at == '\\' && (output->quote != '\'' || output->string) && at[1] &&
	    strchr("\\\"'", at[1]))
		return at + 2;
	if (*at == '?' || strchr("\"' \t\r\n", *at))
		output->query = *at == '?';
	if (shell && !output->quote && strchr(";|&\n", *at) &&
	    !(at > text && strchr("\\>", at[-1])))
		output->user_options = NULL;
	if (shell && (output->quote ? *at == output->quote : quote_opens(at)))
		redact_turn_quote(output, output->quote ? 0 : *at,
				  at > text && isspace((unsigned char)at[-1]) &&
				      program_follows(text, at));
	else if (*at == output->string)
		output->string = 0;
	else if (marks && output->quote != '\n' && quote_opens(at))
		output->string = *at;
	/* Apostrophes in a comment are ignored, secrets in it are not. */
	else if (shell && *at == '#' && !output->quote && (at == text || strchr(" \t\n;", at[-1])))
		redact_turn_quote(output, '\n', false);
	else if (marks && strchr("([{", *at))
		output->code.depth += !(at > text && at[-1] == '$');
	else if (marks && strchr(")]}", *at))
		output->code.depth -= output->code.depth > 0;
	return at + 1;
}

/* What a text is. */
struct redact_text {
	bool to_end;              /* an argument, or several of them */
	bool program;             /* the argument is a program */
	bool user;                /* it is USER:PASSWORD */
	const char *user_options; /* of the command */
};

static void text_redact(const char *patterns, const char *text, struct redact_text what,
			struct buffer *ret_text)
{
	struct redact_output output = {.buffer = ret_text,
				       .text = text,
				       .from = text,
				       .to_end = what.to_end,
				       .code = {.program = what.program},
				       .user_options = what.user_options};
	bool inside = false; /* inside a name that was checked already */
	if (what.user)
		redact_mask_user(&output, text);
	/* Text that does not fit the buffer need not be checked. */
	for (const char *at = output.from;
	     *at && (size_t)(at - output.from) <= ret_text->maximum - ret_text->size;) {
		const char *next = at + 1;
		output.resume = at;
		if (strncmp(at, "csn_", 4) == 0)
			next = redact_look_at_token(at, &output);
		else if (strncmp(at, "://", 3) == 0)
			next = redact_look_at_url(at, &output);
		else if (!name_character(*at))
			next = redact_look_at_mark(text, at, &output);
		else if (!inside) {
			redact_look_at_name(patterns, at, &output);
			/* The value may contain one of our tokens. */
			next = MAX(at + 1, output.resume);
		}
		inside = name_character(*at) && next == at + 1;
		at = next;
	}
	redact_output_put(&output, output.from + strlen(output.from), "");
}

void activity_redact(const char *patterns, const char *text, struct buffer *ret_text)
{
	text_redact(patterns, text, (struct redact_text){0}, ret_text);
}

static bool name_is_shell(const char *program)
{
	static const char *const names[] = {"sh", "bash", "dash", "ash", "ksh", "zsh"};
	const char *name = strrchr(program, '/') ? strrchr(program, '/') + 1 : program;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

static void buffer_append_bounded(struct buffer *buffer, const char *text)
{
	size_t room = buffer->maximum - buffer->size;
	(void)!buffer_append(buffer, text, MIN(strlen(text), room));
}

void activity_redact_command(const char *patterns, const char *const *argv, size_t argc,
			     struct buffer *ret_text)
{
	bool shell = argc > 2 && name_is_shell(argv[0]) && argv[1][0] == '-' &&
		     argv[1][strlen(argv[1]) - 1] == 'c';
	const char *options = NULL;
	for (size_t i = 0; i < argc && ret_text->size < ret_text->maximum; i++) {
		const char *before = i > 0 ? argv[i - 1] : "", *slash = strrchr(before, '/');
		const char *program = slash ? slash + 1 : before, *taken;
		const struct secret_name name = {before, strlen(before), false, false};
		buffer_append_bounded(ret_text, i > 0 ? " " : "");
		taken = program_user_options(program, strlen(program));
		options = taken ? taken : options;
		if (before[0] == '-' && !strchr(before, '=') && strncmp(argv[i], "--", 2) != 0 &&
		    argv[i][0] && name_is_secret(patterns, &name)) {
			buffer_append_bounded(ret_text, MASK);
			continue;
		}
		struct redact_text what = {.to_end = !(shell && i == 2), .user_options = options};
		what.program = i > 1 && what.to_end &&
			       program_follows(ret_text->data, ret_text->data + ret_text->size);
		what.user = user_option_takes_next(options, before, strlen(before));
		text_redact(patterns, argv[i], what, ret_text);
	}
}

void activity_redact_joined(const char *patterns, const char *command, struct buffer *ret_text)
{
	static const char shell[] = "/bin/sh -c ";
	text_redact(patterns, command,
		    (struct redact_text){.to_end = strncmp(command, shell, sizeof(shell) - 1) != 0},
		    ret_text);
}
