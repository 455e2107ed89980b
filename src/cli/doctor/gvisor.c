/* Checks runsc: whether it is installed, its age, and which of its platforms can run a program
 * here. Each run has a pid namespace of its own and is killed if it hangs. Called by doctor.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/doctor/doctor.h"

#define VERSION_TIMEOUT_MS 3000
#define PLATFORM_TIMEOUT_MS 6000
#define RUNSC_REMEDY                                                                               \
	"install a current release of gVisor's runsc (Debian 12's own has known escapes)"
#define OLD_DAYS 366 /* as in src/tier/gvisor/runsc.c: `auto` does not choose older ones */

/* The age of a release in days, or -1. Its name has the date: "release-20250210.0", Debian's
 * "0.0~20221219.0". */
static int64_t runsc_release_age(const char *version)
{
	for (const char *at = version; *at; at++) {
		size_t digits = strspn(at, "0123456789");
		if (digits == 0)
			continue;
		int year, month, day;
		if (digits == 8 && sscanf(at, "%4d%2d%2d", &year, &month, &day) == 3 &&
		    year >= 2018 && month >= 1 && month <= 12 && day >= 1 && day <= 31) {
			struct tm parts = {
			    .tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day};
			return (clock_wall() / NSEC_PER_SEC - (int64_t)timegm(&parts)) / 86400;
		}
		at += digits - 1;
	}
	return -1;
}

/* The places where the tier looks, in its order. */
static bool doctor_runsc_find(char path[128])
{
	static const char *const places[] = {"/usr/bin/runsc", "/usr/local/bin/runsc",
					     "/usr/sbin/runsc"};
	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (access(places[i], X_OK) == 0)
			return text_copy(path, 128, places[i]) == 0;
	return false;
}

/* Runs /bin/true on a platform. Returns 0, or the result of doctor_run_program(). */
static int runsc_platform_try(const char *runsc, const char *platform)
{
	char directory[] = "/tmp/caisson-doctor-XXXXXX", root[64], option[64], text[512];
	if (!mkdtemp(directory))
		return -errno;
	snprintf(root, sizeof(root), "--root=%s", directory);
	snprintf(option, sizeof(option), "--platform=%s", platform);
	const char *argv[12] = {runsc, root, option, "--network=none", "--ignore-cgroups"};
	size_t count = 5;
	if (geteuid() != 0)
		argv[count++] = "--rootless";
	argv[count++] = "do";
	argv[count++] = "/bin/true";
	int result = doctor_run_program(argv, PLATFORM_TIMEOUT_MS, text, sizeof(text));
	/* A killed runsc leaves its state file and lock. */
	const char *const remove[] = {"/bin/rm", "-rf", "--one-file-system", directory, NULL};
	int removed = doctor_run_program(remove, VERSION_TIMEOUT_MS, text, sizeof(text));
	(void)removed;
	return result;
}

static void runsc_version_report(struct finding *finding, const char *version,
				 const char *platforms, const char *hung)
{
	int64_t age = runsc_release_age(version);
	char years[64] = "";
	if (age >= 0)
		snprintf(years, sizeof(years), ", %lld days old", (long long)age);
	if (!*platforms) {
		finding_set(finding, VERDICT_INFORMATION, "%s%s: no platform of it runs here%s%s",
			    version, years, *hung ? "; ended because they hung:" : "", hung);
		return;
	}
	bool old = age > OLD_DAYS;
	finding_set(finding, old ? VERDICT_WARNING : VERDICT_OK, "%s%s; runs with%s%s%s", version,
		    years, platforms, *hung ? "; hung:" : "", hung);
	if (old)
		finding_set_remedy(
		    finding, "install a current release of gVisor's runsc (/usr/bin comes before "
			     "/usr/local/bin: `apt-get remove runsc` first); this release has "
			     "known escapes that later ones fix");
}

DOCTOR_CHECK(doctor_check_runsc)
{
	(void)client;
	static const char *const platforms[] = {"systrap", "ptrace", "kvm"};
	char path[128], text[512], working[64] = "", hung[64] = "";
	if (!doctor_runsc_find(path)) {
		finding_set(finding, VERDICT_INFORMATION, "not installed");
		finding_set_remedy(finding, RUNSC_REMEDY);
		return;
	}
	const char *const argv[] = {path, "--version", NULL};
	int result = doctor_run_program(argv, VERSION_TIMEOUT_MS, text, sizeof(text));
	text[strcspn(text, "\n")] = '\0';
	if (result != 0) {
		finding_set(finding, VERDICT_WARNING, "%s --version %s", path,
			    result == -ETIMEDOUT ? "hung and was ended" : "fails");
		finding_set_remedy(finding, RUNSC_REMEDY);
		return;
	}
	/* The kvm platform hangs if virtualization does not really work. */
	struct finding virtualization = {0};
	doctor_check_kvm(client, &virtualization);
	for (size_t i = 0; i < ARRAY_SIZE(platforms); i++) {
		if (strcmp(platforms[i], "kvm") == 0 && virtualization.verdict != VERDICT_OK)
			continue;
		int outcome = runsc_platform_try(path, platforms[i]);
		char *list = outcome == 0 ? working : hung;
		size_t used = strlen(list);
		if (outcome == 0 || outcome == -ETIMEDOUT)
			snprintf(list + used, sizeof(working) - used, " %s", platforms[i]);
	}
	runsc_version_report(finding, text_starts(text, "runsc version ") ? text + 14 : text,
			     working, hung);
}
