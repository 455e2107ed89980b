/* Template `host`: a root made of this host's own programs, and of nothing of this host's data.
 *
 * It is an allow-list. What the host shows is /usr (and /bin, /lib... where they are not links into
 * it) as plain read-only binds, never idmapped: a file that only the host's root may read stays
 * unreadable inside. All else is the skeleton, a directory under <state>/templates/host that we
 * make: copies of a listed few world-readable files of /etc, a made-up passwd and group, empty
 * directories. Nothing of /etc, /var, /opt, /root or /home is ever bound.
 *
 * Called in the spawner (which says in an error that it is this template):
 * prepare at its start, open at each boot. prepare may block for a second when the skeleton is to
 * be made; open does not. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macros.h"
#include "proto/boot_messages.h"
#include "tier/guest.h"
#include "tier/jail/ids.h"

/* Names what a sandbox of the template sees of the host: 64 digits of hex and a NUL. */
#define TEMPLATE_DIGEST_TEXT 65

/* What a root is made of. All are plain directories, O_PATH | O_DIRECTORY, owned here. */
struct template_trees {
	int lowers[BOOT_LOWERS_MAX]; /* overlay layers, topmost first: ours, may be idmapped */
	uint32_t lower_count;
	int binds[BOOT_BINDS_MAX]; /* the host's: read-only, nosuid, nodev, never idmapped */
	uint32_t bind_places[BOOT_BINDS_MAX]; /* enum boot_place */
	uint32_t bind_count;
};

/* Makes the skeleton if there is none, or if caisson or the host's files that it was made of have
 * changed: built beside the current one and renamed into place, so that a sandbox that is being
 * booted sees one or the other. Skeletons that sandboxes still stand on are kept. */
NODISCARD int template_host_prepare(const struct host *host, struct error *error);
/* The current skeleton and the host's trees. `ids`: whose the skeleton is, where owners cannot be
 * mapped (without root); NULL: a sandbox without folders of the user's. */
NODISCARD int template_host_open(const struct host *host, const struct sandbox_ids *ids,
				 struct template_trees *ret_trees, struct error *error);
/* Closes; takes half-filled ones. */
void template_trees_done(struct template_trees *trees);
/* The digest of the current skeleton's inputs: changes when a sandbox would see another template.
 */
NODISCARD int template_host_digest(const struct host *host, char digest[TEMPLATE_DIGEST_TEXT],
				   struct error *error);

/* What every process in it finds in its environment unless told otherwise: "K=V\0K=V\0". */
extern const char template_host_environment[];
extern const size_t template_host_environment_size;
