/* /v1/templates: the templates for sandboxes. Answers from memory; nothing blocks. */
#include "core/sandbox/template.h"

#include "api/routes.h"

static void put_template(struct json_writer *writer, const struct config *config,
			 const struct template *template)
{
	uint32_t millis = template->cpu_millis ? template->cpu_millis : config->defaults.cpu_millis;
	uint64_t memory = template->memory ? template->memory : config->defaults.memory;
	bool substituted = template_substituted(config, template);
	put_object(writer, NULL);
	put_text(writer, "name", template->name);
	put_text(writer, "label", template->name);
	put_text(writer, "description", template->description);
	put_text(writer, "category", template->category);
	put_bool(writer, "available", template->installed || substituted);
	put_text(writer, "resolved_to",
		 template->installed ? template->name
		 : substituted       ? TEMPLATE_HOST
				     : NULL);
	put_number(writer, "cpu", millis / 1000.0);
	put_uint(writer, "memory_mb", memory / MIB);
	put_uint(writer, "size_bytes", 0);
	put_bool(writer, "is_global", true);
	put_array(writer, "tools");
	for (const char *const *tool = template->tools; *tool; tool++)
		put_text(writer, NULL, *tool);
	put_array_end(writer);
	put_object_end(writer);
}

static void templates_get(struct call *call)
{
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_array(&writer, NULL);
	for (const struct template *template = templates; template->name; template ++)
		put_template(&writer, &call->core->config, template);
	put_array_end(&writer);
	reply_json(call, 200, &writer);
}

static void template_get(struct call *call)
{
	const struct template *template = template_find(call->parameters[0]);
	struct error error;
	if (!template) {
		error_set(&error, ERROR_TEMPLATE_NOT_FOUND, "there is no template `%.64s`",
			  call->parameters[0]);
		reply_error(call, &error);
		return;
	}
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_template(&writer, &call->core->config, template);
	reply_json(call, 200, &writer);
}

const struct route template_routes[] = {
    {"GET", "/v1/templates", READ, 0, templates_get},
    {"GET", "/v1/templates/{template}", READ, 0, template_get},
    {0},
};
