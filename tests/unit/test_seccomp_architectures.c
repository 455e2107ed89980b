/* The filters of all architectures, whichever this is built for: a call that two of them have is
 * answered alike, and nothing of one is in another's by its number. Interpreted, not loaded. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>

#define seccomp_filter_default x86_64_default
#define seccomp_filter_nest x86_64_nest
#define seccomp_filter_shared x86_64_shared
#include "seccomp_filter_x86_64.h"
#undef seccomp_filter_default
#undef seccomp_filter_nest
#undef seccomp_filter_shared
#define seccomp_filter_default aarch64_default
#define seccomp_filter_nest aarch64_nest
#define seccomp_filter_shared aarch64_shared
#include "seccomp_filter_aarch64.h"

#include "base/macros.h"
#include "seccomp_interpret.h"
#include "test.h"

/* Above every number that libseccomp knows. */
#define NUMBERS 512

enum { DEFAULT, NESTED, SHARED, FILTERS };

static struct sock_filter x86_64_nested[ARRAY_SIZE(x86_64_default)],
    aarch64_nested[ARRAY_SIZE(aarch64_default)];

__attribute__((constructor)) static void nest(void)
{
	memcpy(x86_64_nested, x86_64_default, sizeof(x86_64_nested));
	x86_64_nest(x86_64_nested);
	memcpy(aarch64_nested, aarch64_default, sizeof(aarch64_nested));
	aarch64_nest(aarch64_nested);
}

static const struct architecture {
	uint32_t seccomp, audit;
	struct {
		const struct sock_filter *code;
		size_t count;
	} filters[FILTERS];
} x86_64 = {SCMP_ARCH_X86_64,
	    AUDIT_ARCH_X86_64,
	    {{x86_64_default, ARRAY_SIZE(x86_64_default)},
	     {x86_64_nested, ARRAY_SIZE(x86_64_nested)},
	     {x86_64_shared, ARRAY_SIZE(x86_64_shared)}}},
  aarch64 = {SCMP_ARCH_AARCH64,
	     AUDIT_ARCH_AARCH64,
	     {{aarch64_default, ARRAY_SIZE(aarch64_default)},
	      {aarch64_nested, ARRAY_SIZE(aarch64_nested)},
	      {aarch64_shared, ARRAY_SIZE(aarch64_shared)}}};

/* Arguments that separate the rules: nothing, everything, namespaces, set-id modes, sockets. */
static const uint64_t samples[][6] = {
    {0, 0, 0, 0, 0, 0},
    {~0ULL, ~0ULL, ~0ULL, ~0ULL, ~0ULL, ~0ULL},
    {0x10000011, 04755, 04755, 04755, 0, 0},
    {1, 1, 0100, 06000, 0, 0},
    {2, 2, 17, 0, 0, 0},
    {2, 3, 1, 0, 0, 0},
    {16, 3, 0, 0x20, 0, 0},
    {1, 0x5412, 0, 1, 0, 0},
};

static int64_t ask(const struct architecture *architecture, int filter, uint32_t audit, int number,
		   const uint64_t *arguments)
{
	struct seccomp_data data = {.nr = number, .arch = audit};
	memcpy(data.args, arguments, sizeof(data.args));
	return interpret(architecture->filters[filter].code, architecture->filters[filter].count,
			 &data);
}

static void compare_call(const char *name, int here, int there)
{
	for (int filter = 0; filter < FILTERS; filter++) {
		for (size_t i = 0; i < ARRAY_SIZE(samples); i++) {
			int64_t one = ask(&x86_64, filter, x86_64.audit, here, samples[i]);
			int64_t other = ask(&aarch64, filter, aarch64.audit, there, samples[i]);
			if (one != other || one < 0)
				test_fail(__FILE__, __LINE__,
					  "%s, filter %d, sample %zu: %#llx and %#llx", name,
					  filter, i, (long long)one, (long long)other);
		}
	}
}

TEST(alike_on_both)
{
	int compared = 0;
	for (int number = 0; number < NUMBERS; number++) {
		char *name = seccomp_syscall_resolve_num_arch(aarch64.seccomp, number);
		if (!name)
			continue;
		int there = seccomp_syscall_resolve_name_arch(x86_64.seccomp, name);
		if (there >= 0) {
			compare_call(name, there, number);
			compared++;
		}
		free(name);
	}
	CHECK(compared > 280);
}

/* Calls that only one has: nothing but these may be let through there. */
TEST(only_on_aarch64)
{
	for (int number = 0; number < NUMBERS; number++) {
		char *name = seccomp_syscall_resolve_num_arch(aarch64.seccomp, number);
		if (name && seccomp_syscall_resolve_name_arch(x86_64.seccomp, name) < 0) {
			int64_t found = ask(&aarch64, DEFAULT, aarch64.audit, number, samples[0]);
			if (found == SECCOMP_RET_ALLOW)
				test_fail(__FILE__, __LINE__, "%s is allowed", name);
		}
		free(name);
	}
}

TEST(numbers_that_nobody_has)
{
	for (int number = 0; number < NUMBERS; number++) {
		char *name = seccomp_syscall_resolve_num_arch(aarch64.seccomp, number);
		/* From 424 on both have the same numbers, newer ones than libseccomp knows too. */
		if (!name && number < 424)
			CHECK_INT(ask(&aarch64, DEFAULT, aarch64.audit, number, samples[0]),
				  SECCOMP_RET_ERRNO | ENOSYS);
		free(name);
	}
}

TEST(the_other_ones_calls_are_killed)
{
	/* The last two: the right machine with the wrong word size, and none. */
	static const uint32_t foreign[] = {AUDIT_ARCH_I386, AUDIT_ARCH_ARM, AUDIT_ARCH_ARMEB,
					   AUDIT_ARCH_AARCH64 & 0xffff, 0};
	for (int filter = DEFAULT; filter <= NESTED; filter++) {
		CHECK_INT(ask(&x86_64, filter, aarch64.audit, 1, samples[0]),
			  SECCOMP_RET_KILL_PROCESS);
		CHECK_INT(ask(&aarch64, filter, x86_64.audit, 1, samples[0]),
			  SECCOMP_RET_KILL_PROCESS);
		for (size_t i = 0; i < ARRAY_SIZE(foreign); i++) {
			CHECK_INT(ask(&aarch64, filter, foreign[i], 64, samples[0]),
				  SECCOMP_RET_KILL_PROCESS);
			CHECK_INT(ask(&x86_64, filter, foreign[i], 1, samples[0]),
				  SECCOMP_RET_KILL_PROCESS);
		}
	}
}

TEST_MAIN
