/* Checks that virtualization really works: a few instructions run in a guest through KVM, with a
 * time limit, and on x86 the cpu must have VMX or SVM. On some hosts /dev/kvm answers its interface
 * and still cannot run an ordinary kernel. Called by doctor.c. */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/doctor/doctor.h"

#define TIMEOUT_MS 3000
/* At least one page on every kernel: pages on 64-bit ARM have up to 64 KiB. */
#define GUEST_PAGE 65536
#define RUNS_MAX 64

#if defined(__x86_64__)
#define CODE_ADDRESS 0x1000
/* In real mode: al = 42; out 0x10, al; hlt. */
static const unsigned char code[] = {0xb0, 42, 0xe6, 0x10, 0xf4};

static int guest_set_registers(int machine, int cpu)
{
	(void)machine;
	struct kvm_sregs special;
	struct kvm_regs registers = {.rip = CODE_ADDRESS, .rflags = 2};
	if (ioctl(cpu, KVM_GET_SREGS, &special) < 0)
		return errno;
	special.cs.base = 0;
	special.cs.selector = 0;
	if (ioctl(cpu, KVM_SET_SREGS, &special) < 0 || ioctl(cpu, KVM_SET_REGS, &registers) < 0)
		return errno;
	return 0;
}

/* 1: the expected exit; 0: keep running; -1: an unexpected exit. */
static int guest_exit_judge(const struct kvm_run *run)
{
	if (run->exit_reason == KVM_EXIT_INTR)
		return 0;
	if (run->exit_reason != KVM_EXIT_IO || run->io.port != 0x10)
		return -1;
	return *((const unsigned char *)run + run->io.data_offset) == 42 ? 1 : -1;
}
#elif defined(__aarch64__)
#define CODE_ADDRESS 0x10000
#define DEVICE_ADDRESS 0x20000000
/* x0 = 0x20000000; store w0 there. That is no memory, so the guest exits to us. */
static const unsigned char code[] = {0x00, 0x00, 0xa4, 0xd2, 0x00, 0x00, 0x00, 0xb9};

static int guest_set_registers(int machine, int cpu)
{
	struct kvm_vcpu_init init;
	uint64_t start = CODE_ADDRESS;
	struct kvm_one_reg counter = {.id = KVM_REG_ARM64 | KVM_REG_SIZE_U64 | KVM_REG_ARM_CORE |
					    KVM_REG_ARM_CORE_REG(regs.pc),
				      .addr = (uint64_t)(uintptr_t)&start};
	if (ioctl(machine, KVM_ARM_PREFERRED_TARGET, &init) < 0 ||
	    ioctl(cpu, KVM_ARM_VCPU_INIT, &init) < 0 || ioctl(cpu, KVM_SET_ONE_REG, &counter) < 0)
		return errno;
	return 0;
}

static int guest_exit_judge(const struct kvm_run *run)
{
	if (run->exit_reason == KVM_EXIT_INTR)
		return 0;
	return run->exit_reason == KVM_EXIT_MMIO && run->mmio.phys_addr == DEVICE_ADDRESS ? 1 : -1;
}
#endif

#if defined(__x86_64__) || defined(__aarch64__)
static int guest_run(int cpu, struct kvm_run *run)
{
	for (int i = 0; i < RUNS_MAX; i++) {
		if (ioctl(cpu, KVM_RUN, 0) < 0 && errno != EINTR)
			return errno;
		int outcome = guest_exit_judge(run);
		if (outcome != 0)
			return outcome > 0 ? 0 : ENOEXEC;
	}
	return ENOEXEC;
}

static int guest_try(void *data, char *text, size_t room)
{
	(void)data;
	(void)text;
	(void)room;
	CLOSE_FD int device = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (device < 0)
		return errno;
	if (ioctl(device, KVM_GET_API_VERSION, 0) != KVM_API_VERSION)
		return EPROTO;
	CLOSE_FD int machine = ioctl(device, KVM_CREATE_VM, 0);
	if (machine < 0)
		return errno;
	unsigned char *memory =
	    mmap(NULL, GUEST_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return errno;
	memcpy(memory, code, sizeof(code));
	struct kvm_userspace_memory_region region = {.guest_phys_addr = CODE_ADDRESS,
						     .memory_size = GUEST_PAGE,
						     .userspace_addr = (uintptr_t)memory};
	if (ioctl(machine, KVM_SET_USER_MEMORY_REGION, &region) < 0)
		return errno;
	CLOSE_FD int cpu = ioctl(machine, KVM_CREATE_VCPU, 0);
	int size = ioctl(device, KVM_GET_VCPU_MMAP_SIZE, 0);
	if (cpu < 0 || size < (int)sizeof(struct kvm_run))
		return cpu < 0 ? errno : EPROTO;
	struct kvm_run *run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, cpu, 0);
	if (run == MAP_FAILED)
		return errno;
	int failure = guest_set_registers(machine, cpu);
	return failure ? failure : guest_run(cpu, run);
}
#else
static int guest_try(void *data, char *text, size_t room)
{
	(void)data;
	(void)text;
	(void)room;
	return ENOSYS;
}
#endif

static bool cpu_shows_virtualization(void)
{
#if defined(__x86_64__)
	return doctor_file_has_word("/proc/cpuinfo", "vmx") ||
	       doctor_file_has_word("/proc/cpuinfo", "svm");
#else
	return true;
#endif
}

DOCTOR_CHECK(doctor_check_kvm)
{
	(void)client;
	char text[16];
	bool flags = cpu_shows_virtualization();
	if (access("/dev/kvm", F_OK) < 0) {
		finding_set(finding, VERDICT_INFORMATION, "no /dev/kvm%s",
			    flags ? "" : ", and the cpu shows neither VMX nor SVM");
		finding_set_remedy(finding,
				   flags ? "modprobe kvm_intel || modprobe kvm_amd; inside a "
					   "container: --device /dev/kvm"
					 : "turn on virtualization in the firmware, or nested "
					   "virtualization on the machine below");
		return;
	}
	int result = doctor_run_child(guest_try, NULL, TIMEOUT_MS, text, sizeof(text));
	if (result == 0 && flags) {
		finding_set(finding, VERDICT_OK, "a guest ran its first instructions");
	} else if (flags && (result == EACCES || result == EPERM)) {
		finding_set(finding, VERDICT_INFORMATION,
			    "/dev/kvm may not be opened by this user");
		finding_set_remedy(finding,
				   "usermod -aG kvm $(id -un), as root, then log in again");
	} else if (!flags) {
		finding_set(finding, VERDICT_INFORMATION,
			    "not usable: /dev/kvm exists%s, but the cpu has neither VMX nor SVM; "
			    "an ordinary kernel does not run on it",
			    result == 0 ? " and a guest runs a few instructions" : "");
		finding_set_remedy(finding, "nested virtualization on the machine below this one");
	} else {
		finding_set(finding, VERDICT_INFORMATION, "not usable: a guest did not run: %s",
			    result == -ETIMEDOUT ? "it hung and was ended"
						 : strerror(result < 0 ? -result : result));
	}
}
