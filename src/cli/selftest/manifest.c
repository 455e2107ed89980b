/* The manifest of escapes (tests/escape/manifest.json, which explains its fields): which items a
 * tier has, and their expected results there. Blocks only to read a file. */
#include <string.h>

#include "cli/selftest/selftest.h"

int selftest_load_manifest(const char *file, json_t **ret_manifest, struct error *error)
{
	json_error_t problem;
	*ret_manifest = file ? json_load_file(file, JSON_REJECT_DUPLICATES, &problem)
			     : json_loadb(escape_manifest, escape_manifest_size, 0, &problem);
	if (!*ret_manifest)
		return error_set(error, ERROR_USAGE, "%s: line %d: %s",
				 file ? file : "the manifest", problem.line, problem.text);
	if (json_array_size(json_object_get(*ret_manifest, "items")) == 0)
		return error_set(error, ERROR_USAGE, "the manifest has no items");
	return 0;
}

static bool item_names_tier(const json_t *item, const char *tier)
{
	size_t at;
	json_t *one;
	json_array_foreach(json_object_get(item, "tiers"), at, one)
	{
		const char *name = json_string_value(one);
		if (name && strcmp(name, tier) == 0)
			return true;
	}
	return false;
}

/* The namespace tier's variants of an expectation depend on the host's kernel, so other tiers do
 * not use them. */
static json_t *item_for_tier(const json_t *item, const char *tier)
{
	static const char *const variants[] = {"expect_as", "nested", "folder", "rights"};
	json_t *copy = json_copy((json_t *)item), *differs = json_object_get(item, tier);
	for (size_t i = 0; strcmp(tier, "namespace") != 0 && i < ARRAY_SIZE(variants); i++)
		json_object_del(copy, variants[i]);
	if (differs)
		json_object_update(copy, differs);
	return copy;
}

/* The items that this program tries, without those that a named test covers or that do not exist
 * yet. */
json_t *selftest_items(const json_t *manifest, const char *tier)
{
	json_t *items = json_object(), *item;
	size_t at;
	json_array_foreach(json_object_get(manifest, "items"), at, item)
	{
		if (item_names_tier(item, tier) && !json_object_get(item, "not_yet") &&
		    !selftest_item_is_side(item, "suite"))
			json_object_set_new(items, member_text(item, "id"),
					    item_for_tier(item, tier));
	}
	return items;
}

bool selftest_item_is_elsewhere(const struct selftest *test, const char *id)
{
	size_t at;
	json_t *item;
	if (selftest_has_item(test, id))
		return false;
	json_array_foreach(json_object_get(test->manifest, "items"), at, item)
	{
		if (strcmp(member_text(item, "id"), id) == 0)
			return true;
	}
	return false;
}
