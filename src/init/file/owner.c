/* Parses an owner: "user", "user:group", ":group", "user:" (with the login group) or numbers.
 * Called by chown; reads the sandbox's /etc/passwd and /etc/group through user.c. */
#include <string.h>

#include "init/file/internal.h"
#include "init/exec/user.h"

int file_owner_parse(struct bytes owner, uid_t *ret_uid, gid_t *ret_gid, struct failure *failure)
{
	static struct user user;
	struct failure reason = {0};
	char text[128] = "", group[66] = "0:";
	if (owner.size == 0 || owner.size >= sizeof(text) || memchr(owner.data, '\0', owner.size))
		return file_refused(failure, ERROR_FILE_INVALID, "",
				    "the owner must be USER, USER:GROUP, :GROUP or numbers");
	memcpy(text, owner.data, owner.size);
	char *colon = strchr(text, ':');
	size_t group_size = colon ? strlen(colon + 1) : 0;
	if (colon)
		*colon = '\0';
	if ((text[0] == '\0' && group_size == 0) || group_size >= sizeof(group) - 2)
		return file_refused(failure, ERROR_FILE_INVALID, "",
				    "the owner must be USER, USER:GROUP, :GROUP or numbers");
	*ret_uid = (uid_t)-1;
	*ret_gid = (gid_t)-1;
	if (text[0] != '\0') {
		if (user_find(text, &user, &reason) < 0)
			return file_refused(failure, ERROR_FILE_INVALID, "", reason.message);
		*ret_uid = user.uid;
		*ret_gid = colon ? user.gid : (gid_t)-1;
	}
	if (group_size > 0) {
		memcpy(group + 2, colon + 1, group_size + 1);
		if (user_find(group, &user, &reason) < 0)
			return file_refused(failure, ERROR_FILE_INVALID, "", reason.message);
		*ret_gid = user.gid;
	}
	return 0;
}
