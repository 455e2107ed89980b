/* The fixtures' resources and prompts. Called by resources.c, prompts.c and completion.c. Nothing
 * blocks. */
#include <string.h>

#include "mcp/ask.h"
#include "mcp/fixtures.h"

/* --- resources --- */

static void read_text(struct mcp_request *request, const char *uri, const char *const *variables)
{
	static const char text[] = "This is the content of the static text resource.";
	(void)variables;
	resource_reply_text(request, uri, "text/plain", text, strlen(text));
}

static void read_binary(struct mcp_request *request, const char *uri, const char *const *variables)
{
	(void)variables;
	resource_reply_blob(request, uri, "image/png", fixture_png, fixture_png_size);
}

static void read_template(struct mcp_request *request, const char *uri,
			  const char *const *variables)
{
	struct buffer text DONE_BUFFER = BUFFER(4 * FIXTURE_TEXT_MAX);
	struct buffer data DONE_BUFFER = BUFFER(2 * FIXTURE_TEXT_MAX);
	struct json_writer writer = json_writer_on(&text);
	if (strlen(variables[0]) > FIXTURE_TEXT_MAX ||
	    buffer_printf(&data, "Data for ID: %s", variables[0]) < 0) {
		resource_not_found(request, uri);
		return;
	}
	put_object(&writer, NULL);
	put_text(&writer, "id", variables[0]);
	put_bool(&writer, "templateTest", true);
	put_text(&writer, "data", buffer_text(&data));
	put_object_end(&writer);
	resource_reply_text(request, uri, "application/json", text.data, text.size);
}

static void read_watched(struct mcp_request *request, const char *uri, const char *const *variables)
{
	static const char text[] = "Watched resource content";
	(void)variables;
	resource_reply_text(request, uri, "text/plain", text, strlen(text));
}

/* It can be watched, and never changes. */
static int watch_watched(struct resource_watch *watch, const char *const *variables,
			 struct error *error)
{
	(void)watch;
	(void)variables;
	(void)error;
	return 0;
}

static void complete_id(struct mcp_request *request, const char *variable, const char *value)
{
	struct completion completion;
	(void)variable;
	completion_begin(request, &completion);
	if (strncmp("123", value, strlen(value)) == 0)
		completion_put(&completion, "123");
	completion_end(request, &completion);
}

static const struct resource_kind static_text = {
    .template = "test://static-text",
    .name = "Static text",
    .description = "A text that never changes",
    .type = "text/plain",
    .read = read_text,
};
static const struct resource_kind static_binary = {
    .template = "test://static-binary",
    .name = "Static binary",
    .description = "A picture that never changes",
    .type = "image/png",
    .read = read_binary,
};
static const struct resource_kind template_data = {
    .template = "test://template/{id}/data",
    .name = "Resource template",
    .description = "Data for an id",
    .type = "application/json",
    .read = read_template,
    .complete = complete_id,
};
static const struct resource_kind watched = {
    .template = "test://watched-resource",
    .name = "Watched resource",
    .description = "One that can be subscribed to",
    .type = "text/plain",
    .read = read_watched,
    .watch = watch_watched,
};

const struct resource_kind *const fixture_resources[] = {&static_text, &static_binary,
							 &template_data, &watched, NULL};

/* --- prompts --- */

static void get_simple(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	prompt_begin(request);
	prompt_text(request, "This is a simple prompt for testing.");
	prompt_end(request);
}

/* prompts.c has seen to it that what is required is there. */
static const char *text_of(const json_t *arguments, const char *name)
{
	const char *text = json_string_value(json_object_get(arguments, name));
	return text && strlen(text) <= FIXTURE_TEXT_MAX ? text : "";
}

static void get_with_arguments(struct mcp_request *request, const json_t *arguments)
{
	struct buffer text DONE_BUFFER = BUFFER(4 * FIXTURE_TEXT_MAX);
	(void)!buffer_printf(&text, "Prompt with arguments: arg1='%s', arg2='%s'",
			     text_of(arguments, "arg1"), text_of(arguments, "arg2"));
	prompt_begin(request);
	prompt_text(request, buffer_text(&text));
	prompt_end(request);
}

static void get_with_resource(struct mcp_request *request, const json_t *arguments)
{
	prompt_begin(request);
	prompt_resource(request, text_of(arguments, "resourceUri"), "text/plain",
			"Embedded resource content for testing.");
	prompt_text(request, "Please process the embedded resource above.");
	prompt_end(request);
}

static void get_with_image(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	prompt_begin(request);
	prompt_image(request, "image/png", fixture_png, fixture_png_size);
	prompt_text(request, "Please analyze the image above.");
	prompt_end(request);
}

static void get_input_go(struct mcp_request *request)
{
	static const struct question question = {
	    "user_context", "elicitation/create",
	    "{\"message\":\"What context should the prompt use?\",\"requestedSchema\":"
	    "{\"type\":\"object\",\"properties\":{\"context\":{\"type\":\"string\"}},"
	    "\"required\":[\"context\"]}}"};
	const json_t *state;
	if (!ask_state(request, &state))
		return;
	const char *context = fixture_answer_text(request, "user_context", "context");
	if (!context) {
		ask(request, &question, 1, NULL, get_input_go);
		return;
	}
	prompt_begin(request);
	prompt_text(request, context);
	prompt_end(request);
}

static void get_input(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	get_input_go(request);
}

static void complete_argument(struct mcp_request *request, const char *argument, const char *value)
{
	static const char *const values[] = {"paris", "park", "party"};
	struct completion completion;
	completion_begin(request, &completion);
	for (size_t i = 0; strcmp(argument, "arg1") == 0 && i < ARRAY_SIZE(values); i++)
		if (strncmp(values[i], value, strlen(value)) == 0)
			completion_put(&completion, values[i]);
	completion_end(request, &completion);
}

static const struct prompt_argument two_arguments[] = {
    {"arg1", "The first argument", true}, {"arg2", "The second argument", true}, {0}};
static const struct prompt_argument uri_argument[] = {
    {"resourceUri", "The resource that is to be embedded", true}, {0}};

static const struct prompt simple = {
    .name = "test_simple_prompt", .description = "A prompt without arguments", .get = get_simple};
static const struct prompt with_arguments = {.name = "test_prompt_with_arguments",
					     .description = "A prompt with two arguments",
					     .arguments = two_arguments,
					     .get = get_with_arguments,
					     .complete = complete_argument};
static const struct prompt with_resource = {.name = "test_prompt_with_embedded_resource",
					    .description = "A prompt with a resource in it",
					    .arguments = uri_argument,
					    .get = get_with_resource};
static const struct prompt with_image = {.name = "test_prompt_with_image",
					 .description = "A prompt with a picture in it",
					 .get = get_with_image};
static const struct prompt with_input = {.name = "test_input_required_result_prompt",
					 .description = "A prompt that asks for its context",
					 .get = get_input};

const struct prompt *const fixture_prompts[] = {&simple,     &with_arguments, &with_resource,
						&with_image, &with_input,     NULL};
