/* Removes secrets from the activity: values of names that look like secrets, bearer tokens, our own
 * tokens, passwords in URLs. Everything else stays readable: a receipt with holes proves little.
 * Called for every value before it is hashed. Pure; one pass over a short text.
 *
 * A command line can hold a secret in any form; these are the usual ones. `***` replaces a secret,
 * so that a reader sees that something was removed. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "core/activity/activity.h"

#define MASK "***"
#define OWN_TOKEN_MIN 8     /* characters after "csn_" */
#define BEARER_TOKEN_MIN 16 /* "the bearer of news" has no token */
#define NAME_MAX_SIZE 256   /* longer words are data */

static bool name_character(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

/* '*' matches any text; '-' and '_' are equal, and case does not matter. */
static bool glob_matches(const char *pattern, size_t pattern_size, const char *name, size_t size)
{
	size_t at = 0, star = SIZE_MAX, from = 0, i = 0;
	while (i < size) {
		char c = (char)tolower((unsigned char)name[i]);
		char p = at < pattern_size ? (char)tolower((unsigned char)pattern[at]) : '\0';
		if (at < pattern_size && p == '*') {
			star = at++;
			from = i;
		} else if (at < pattern_size && (p == c || (strchr("-_", p) && strchr("-_", c)))) {
			at++;
			i++;
		} else if (star != SIZE_MAX) {
			at = star + 1;
			i = ++from;
		} else {
			return false;
		}
	}
	while (at < pattern_size && pattern[at] == '*')
		at++;
	return at == pattern_size;
}

/* Does a word of the name begin or end before name[at]? "MY_TOKEN", "my-token", "myToken",
 * "token2". */
static bool word_boundary(const char *name, size_t size, size_t at)
{
	if (at == 0 || at == size)
		return true;
	unsigned char before = (unsigned char)name[at - 1], after = (unsigned char)name[at];
	return !isalnum(before) || !isalnum(after) || !isalpha(before) != !isalpha(after) ||
	       (islower(before) && isupper(after));
}

/* A pattern with a '*' must match the whole name; without one it must match a word of it, or
 * several words in a row. */
static bool secret_pattern_matches(const char *pattern, size_t length, const char *name,
				   size_t size)
{
	if (memchr(pattern, '*', length))
		return glob_matches(pattern, length, name, size);
	for (size_t at = 0; at + length <= size; at++)
		if (word_boundary(name, size, at) && word_boundary(name, size, at + length) &&
		    glob_matches(pattern, length, name + at, length))
			return true;
	return false;
}

/* Matches a pattern, and none with '!' before it. */
static bool name_is_secret(const char *patterns, const char *name, size_t size)
{
	bool secret = false;
	while (size > 0 && *name == '-') {
		name++;
		size--;
	}
	if (size == 0 || size > NAME_MAX_SIZE)
		return false;
	while (*patterns) {
		bool exception = *patterns == '!';
		patterns += exception;
		size_t length = strcspn(patterns, " \t,:");
		if (length > 0 && (exception || !secret) &&
		    secret_pattern_matches(patterns, length, name, size)) {
			if (exception)
				return false;
			secret = true;
		}
		patterns += length + (patterns[length] != '\0');
	}
	return secret;
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

struct redact_output {
	struct buffer *buffer;
	const char *text;   /* its beginning */
	const char *from;   /* not yet written */
	const char *resume; /* where the scan continues after a masked value */
	char quote;         /* the scan is inside this quote; 0: none */
	bool to_end;        /* a value extends to the end of the text */
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

/* Masks the value at `value`, inside of `quote` (0: none). An assigned value is a shell word; a
 * value after a colon is JSON's, or a header's that extends to the closing quote. */
static void redact_mask_from(struct redact_output *output, const char *value, char quote, char sign)
{
	bool quoted = *value == '"' || *value == '\'',
	     escaped = value[0] == '\\' && value[1] == '"';
	const char *begin = value, *end, *resume = NULL;
	output->quote = quote;
	if (output->to_end) {
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
		const char *word = sign == ':' ? resume : word_end(value);
		if (word > resume && *resume != quote)
			resume = end = word;
		else
			begin = value + 1;
	} else {
		end = quote ? quoted_end(value, quote, quote == '"') : word_end(value);
	}
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

/* The beginning of the name's value, or NULL. */
static const char *option_value(const struct redact_output *output, const char *name, size_t size,
				char *ret_quote, char *ret_sign)
{
	const char *end = name + size, *value = end + strspn(end, " \t"),
		   *at = end + (end[0] == '\\' && end[1] == '"');
	bool quoted = *at == '"' || *at == '\'';
	*ret_quote = output->quote;
	if (quoted)
		*ret_quote = *at++ == output->quote && at == end + 1 ? 0 : output->quote;
	at += strspn(at, " \t");
	*ret_sign = *at;
	if (*at == '=') {
		const char *behind = at + 1 + strspn(at + 1, " \t");
		/* A comparison assigns nothing; with blanks it is program code: password = "x". */
		if (at[1] == '=')
			return NULL;
		return *behind == '"' || *behind == '\'' ? behind : at + 1;
	}
	if (*at == ':') {
		value = at + 1 + strspn(at + 1, " \t");
		/* "https://", "a::b" and the like are not values. */
		if (*value == '/' || *value == ':' ||
		    (!quoted && !colon_names(output, name, size, value > at + 1)))
			return NULL;
		return value;
	}
	return *name == '-' && value > end && *value != '-' ? value : NULL;
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
	char quote, sign;
	if (token_is_scheme(name, size) && value > name + size &&
	    token_looks_like_credentials(value)) {
		redact_mask_value(output, value, value + credentials_size(value));
		return;
	}
	value = option_value(output, name, size, &quote, &sign);
	/* Last, since it takes longest: most names have nothing after them that could be a
	 * value. */
	if (!value || !*value ||
	    (!name_is_secret(patterns, name, size) && !name_is_secret(header, name, size)))
		return;
	const char *word = value + (*value == '"' || *value == '\'');
	size_t length = 0;
	while (isalpha((unsigned char)word[length]))
		length++;
	if (sign == ':' && token_is_scheme(word, length) && word[length] == ' ') {
		word += length + strspn(word + length, " \t");
		redact_mask_value(output, word, word + credentials_size(word));
		return;
	}
	redact_mask_from(output, value, quote, sign);
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

/* Skips a quote or escape, which is not part of a name. Returns where to continue. */
static const char *redact_look_at_quote(const char *text, const char *at,
					struct redact_output *output)
{
	if (*at == '\\' && output->quote != '\'' && at[1] && strchr("\\\"'", at[1]))
		return at + 2;
	if (output->quote ? *at == output->quote : quote_opens(at))
		output->quote = output->quote ? 0 : *at;
	/* Apostrophes in a comment are ignored, secrets in it are not. */
	else if (*at == '#' && !output->quote && (at == text || strchr(" \t\n;", at[-1])))
		output->quote = '\n';
	return at + 1;
}

static void text_redact(const char *patterns, const char *text, bool to_end,
			struct buffer *ret_text)
{
	struct redact_output output = {
	    .buffer = ret_text, .text = text, .from = text, .to_end = to_end};
	bool inside = false; /* inside a name that was checked already */
	/* Text that does not fit the buffer need not be checked. */
	for (const char *at = text;
	     *at && (size_t)(at - output.from) <= ret_text->maximum - ret_text->size;) {
		const char *next = at + 1;
		output.resume = at;
		if (strncmp(at, "csn_", 4) == 0)
			next = redact_look_at_token(at, &output);
		else if (strncmp(at, "://", 3) == 0)
			next = redact_look_at_url(at, &output);
		else if (!name_character(*at))
			next = redact_look_at_quote(text, at, &output);
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
	text_redact(patterns, text, false, ret_text);
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
	for (size_t i = 0; i < argc && ret_text->size < ret_text->maximum; i++) {
		const char *before = i > 0 ? argv[i - 1] : "";
		buffer_append_bounded(ret_text, i > 0 ? " " : "");
		if (before[0] == '-' && !strchr(before, '=') && strncmp(argv[i], "--", 2) != 0 &&
		    argv[i][0] && name_is_secret(patterns, before, strlen(before)))
			buffer_append_bounded(ret_text, MASK);
		else
			text_redact(patterns, argv[i], !(shell && i == 2), ret_text);
	}
}

void activity_redact_joined(const char *patterns, const char *command, struct buffer *ret_text)
{
	static const char shell[] = "/bin/sh -c ";
	text_redact(patterns, command, strncmp(command, shell, sizeof(shell) - 1) != 0, ret_text);
}
