/* Pages of lists, and the opaque cursors between them. A cursor names the next table and the place
 * in it. It reveals nothing that a client could not find out with requests, so its form is checked,
 * but it is not signed. Called by mcp/resources/resources.c and prompts.c; nothing blocks. */
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/text.h"
#include "mcp/resources/resource.h"

#define PAGE_OBJECTS 100
#define CURSOR_PREFIX "page:"
#define CURSOR_MAX (sizeof(CURSOR_PREFIX) + 12 + PAGE_POSITION_MAX)

static bool page_cursor_parse(const char *cursor, uint32_t *ret_table, struct page *page)
{
	char text[CURSOR_MAX + 3];
	uint64_t table;
	size_t size = strlen(cursor);
	if (size > BASE64_SIZE(CURSOR_MAX))
		return false;
	ssize_t used = base64_decode(cursor, size, text);
	if (used < 0 || (size_t)used > CURSOR_MAX || memchr(text, '\0', (size_t)used))
		return false;
	text[used] = '\0';
	char *number = text + strlen(CURSOR_PREFIX);
	char *position = text_starts(text, CURSOR_PREFIX) ? strchr(number, ':') : NULL;
	if (!position)
		return false;
	*position++ = '\0';
	if (text_to_u64(number, 0, UINT32_MAX, &table) < 0 ||
	    text_copy(page->position, sizeof(page->position), position) < 0)
		return false;
	*ret_table = (uint32_t)table;
	return true;
}

bool page_open(struct mcp_request *request, uint32_t *ret_table, struct page *page)
{
	const json_t *cursor = json_object_get(request->params, "cursor");
	*page = (struct page){.room = PAGE_OBJECTS};
	*ret_table = 0;
	if (!cursor)
		return true;
	const char *text = json_string_value(cursor);
	/* An empty cursor means the beginning. */
	if (text && (!*text || page_cursor_parse(text, ret_table, page)))
		return true;
	mcp_error(request, MCP_INVALID_PARAMS, NULL,
		  "the cursor is not one that this server gave out; ask again without one");
	return false;
}

void page_close(const struct page *page, uint32_t table)
{
	char plain[CURSOR_MAX], text[BASE64_SIZE(CURSOR_MAX)];
	if (!page->more)
		return;
	int size = snprintf(plain, sizeof(plain), CURSOR_PREFIX "%u:%s", table, page->position);
	base64_encode(plain, (size_t)size, text);
	put_text_size(page->writer, "nextCursor", text, BASE64_SIZE((size_t)size));
}
