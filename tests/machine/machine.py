"""A Debian 12 of its own to run suites in: Debian's cloud kernel (6.1) with systemd and cgroup version 2, in
QEMU without hardware help. So the columns of cgroup version 2, and a kernel that has none of the calls that
came after it, are tested whatever this host is.

run() boots it with the tree's tests and a build on a second disk; the disks are never written, QEMU keeps the
changes of a run in a file that has no name. The machine has no network."""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

import image

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TREE_MIB = 1024
MEMORY_MIB = 4096


def make_tree(work, build, plan):
    """What the suites need: the tests, the API's description and the programs of a build; and the plan."""
    tree = os.path.join(work, "tree")
    shutil.copytree(os.path.join(TOP, "tests"), os.path.join(tree, "tests"), symlinks=True,
                    ignore=shutil.ignore_patterns("node_modules", "__pycache__", "corpus"))
    for name in ("docs", "data", "tools", "README.md"):
        source = os.path.join(TOP, name)
        (shutil.copytree if os.path.isdir(source) else shutil.copy)(source, os.path.join(tree, name))
    for name in ("caisson", "caisson-init", "caisson-probe", "caisson.service"):
        os.makedirs(os.path.join(tree, "build"), exist_ok=True)
        shutil.copy(os.path.join(build, name), os.path.join(tree, "build", name))
    for path in glob.glob(os.path.join(build, "tests/**/*"), recursive=True):
        if os.access(path, os.X_OK) and os.path.isfile(path) and not os.path.basename(path).startswith(("test-", "replay-")):
            target = os.path.join(tree, "build", os.path.relpath(path, build))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(path, target)
    image.command("meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", os.path.join(tree, "installed"))
    with open(os.path.join(tree, "plan.json"), "w", encoding="utf-8") as file:
        json.dump(plan, file)
    disk = os.path.join(work, "tree.img")
    image.make_disk(tree, disk, TREE_MIB)
    return disk


def run(build, plan, seconds, each_line):
    """Boots, has tests/machine/inside do what the plan says, and gives each line that it prints to each_line().
    Returns QEMU's exit code, and what was said on the console. After so many seconds it is ended (code 124)."""
    made = image.image()
    with tempfile.TemporaryDirectory(prefix="caisson-machine-") as work:
        disk = make_tree(work, build, plan)
        console = os.path.join(work, "console")
        process = subprocess.Popen(
            ["timeout", "-k", "5", str(seconds), "qemu-system-x86_64", "-M", "pc", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", str(MEMORY_MIB),
             "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
             "-serial", "file:" + console, "-serial", "stdio",
             "-drive", f"file={os.path.join(made, 'root.img')},if=virtio,format=raw,snapshot=on",
             "-drive", f"file={disk},if=virtio,format=raw,snapshot=on",
             "-kernel", os.path.join(made, "vmlinuz"), "-initrd", os.path.join(made, "initramfs"),
             "-append", "console=ttyS0 quiet panic=-1 systemd.log_color=0 root=/dev/vda"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": work})
        try:
            for line in process.stdout:
                each_line(line.decode(errors="replace").rstrip("\r\n"))
            process.wait()
        finally:
            process.terminate()
            process.wait()
        with open(console, encoding="utf-8", errors="replace") as file:
            return process.returncode, file.read()


if __name__ == "__main__":
    exit_code, said = run(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), lambda line: print(line, flush=True))
    print(said)
    sys.exit(exit_code)
