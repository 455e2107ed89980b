"""The kernel, an initramfs and the root file system of the machine that machine.py boots, made once from Debian's
packages. Nothing is installed on this host but the tools that do it (tools/deps --tests). The root file system has
systemd, what the program and its suites need, and a service that does what the second disk says."""
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import cache  # noqa: E402 (its place is known now)

SUITE = "bookworm"
PACKAGES = ("systemd-sysv dbus-user-session libpam-systemd uidmap procps kmod iproute2 e2fsprogs openssl strace curl "
            "python3 python3-pip python3-setuptools python3-wheel python3-jsonschema "
            "libuv1 libjansson4 libsqlite3-0 libinih1 libssl3 libseccomp2 libzstd1 libarchive13").split()
KERNEL = "linux-image-cloud-amd64"
MODULES = ("virtio_pci", "virtio_blk")  # for the disks; what they need is loaded before them
RETRIES = "3"
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
ROOT_MIB = 2048

INITRAMFS = """#!/bin/sh
mount -t devtmpfs dev /dev
for module in {modules}; do insmod /$module; done
mount -t ext4 /dev/vda /root
mount -t ext4 -o ro /dev/vdb /root/tree
mount --move /dev /root/dev
exec switch_root /root /sbin/init
"""

UNIT = """[Unit]
Description=Tests of Caisson
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/tree/tests/machine/inside
ExecStopPost=/usr/bin/systemctl poweroff --force --force
StandardOutput=journal+console
StandardError=journal+console
Delegate=yes
TimeoutStartSec=infinity
"""


def command(*words, **options):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, **options)


def newest_kernel():
    """The package that the kernel's meta package stands for."""
    output = subprocess.run(["apt-cache", "depends", KERNEL], check=True, capture_output=True, text=True).stdout
    names = [line.split()[-1] for line in output.splitlines() if "Depends: linux-image-" in line]
    return names[0]


def unpack(folder, packages):
    """The files of Debian packages, without installing them."""
    command("apt-get", "-qq", "-o", "Acquire::Retries=" + RETRIES, "-o", "APT::Sandbox::User=root", "download", *packages, cwd=folder)
    for package in glob.glob(os.path.join(folder, "*.deb")):
        command("dpkg-deb", "-x", package, folder)
        os.unlink(package)


def in_loading_order(modules):
    """Paths below `modules`, a folder of one kernel's modules. Which of them needs which differs between kernels."""
    with open(os.path.join(modules, "modules.dep"), encoding="utf-8") as file:
        needs = {path: before.split() for path, before in (line.split(":") for line in file)}
    ordered = []
    for name in MODULES:
        [wanted] = [path for path in needs if os.path.basename(path) == name + ".ko"]
        ordered += [path for path in [*reversed(needs[wanted]), wanted] if path not in ordered]
    return ordered


def make_initramfs(folder, kernel, path):
    [modules] = glob.glob(os.path.join(kernel, "lib/modules/*"))
    command("depmod", "-b", kernel, os.path.basename(modules))
    with tempfile.TemporaryDirectory(dir=folder) as work:
        for name in ("bin", "dev", "root", "proc"):
            os.mkdir(os.path.join(work, name))
        shutil.copy(os.path.join(kernel, "bin/busybox"), os.path.join(work, "bin"))
        for name in ("sh", "mount", "insmod", "switch_root"):
            os.symlink("busybox", os.path.join(work, "bin", name))
        loaded = in_loading_order(modules)
        for module in loaded:
            shutil.copy(os.path.join(modules, module), work)
        with open(os.path.join(work, "init"), "w", encoding="utf-8") as file:
            file.write(INITRAMFS.format(modules=" ".join(map(os.path.basename, loaded))))
        os.chmod(os.path.join(work, "init"), 0o755)
        names = "\n".join(os.path.relpath(os.path.join(top, name), work)
                          for top, directories, files in os.walk(work) for name in directories + files)
        with open(path, "wb") as file:
            subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=work, input=names.encode(), stdout=file, check=True)


def make_root(folder, kernel, path):
    root = os.path.join(folder, "root")
    command("mmdebstrap", "--quiet", "--variant=minbase", f'--aptopt=Acquire::Retries "{RETRIES}"', "--include=" + ",".join(PACKAGES),
            *[f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT], SUITE, root)
    command("cp", "-a", os.path.join(kernel, "lib/modules"), os.path.join(root, "lib"))
    with open(os.path.join(root, "etc/systemd/system/tests.service"), "w", encoding="utf-8") as file:
        file.write(UNIT)
    open(os.path.join(root, "etc/fstab"), "w").close()
    os.mkdir(os.path.join(root, "tree"))
    os.symlink("/etc/systemd/system/tests.service",
               os.path.join(root, "etc/systemd/system/multi-user.target.wants/tests.service"))
    # It would wait for a device, of which nobody tells systemd: there is no udev.
    os.symlink("/dev/null", os.path.join(root, "etc/systemd/system/serial-getty@ttyS0.service"))
    make_disk(root, path, ROOT_MIB)


def make_disk(source, path, mib):
    command("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", source, path, f"{mib}m")


def image():
    """The folder with vmlinuz, initramfs and root.img; made anew when this file or the kernel is another (cache.py)."""
    kernel_package = newest_kernel()
    with open(__file__, "rb") as file:
        mark = hashlib.sha256(file.read() + kernel_package.encode()).hexdigest()

    def make(result):
        with tempfile.TemporaryDirectory(dir=result) as work:
            kernel = os.path.join(work, "kernel")
            os.mkdir(kernel)
            unpack(kernel, [kernel_package, "busybox-static"])
            [vmlinuz] = glob.glob(os.path.join(kernel, "boot/vmlinuz-*"))
            shutil.copy(vmlinuz, os.path.join(result, "vmlinuz"))
            make_initramfs(work, kernel, os.path.join(result, "initramfs"))
            make_root(work, kernel, os.path.join(result, "root.img"))
    return cache.kept("machine", mark, make)


if __name__ == "__main__":
    print(image())


