"""File operations over REST, against a hostile file system."""
import contextlib
import os
import threading
import time
import unittest

from caisson import ApiError, DaemonTest, inits_of, wait_until
from marks import busy, column_independent, heavy, long


class Files(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.box = cls.api.create(timeout_seconds=3600, disk_mb=2048)["id"]
        cls.base = f"/v1/sandboxes/{cls.box}/files"

    def test_write_and_read_bytes(self):
        data = bytes(range(256)) * 1000
        self.api.write(self.box, "/workspace/bytes", data)
        self.assertEqual(self.api.read(self.box, "/workspace/bytes"), data)
        self.assertEqual(self.api.read(self.box, "/workspace/bytes", offset=255, length=3), b"\xff\0\1")
        self.assertEqual(self.api.read(self.box, "bytes", offset=10**9), b"")

    @column_independent
    def test_empty_file(self):
        self.api.write(self.box, "/workspace/empty", b"")
        self.assertEqual(self.api.read(self.box, "/workspace/empty"), b"")

    @busy
    @column_independent
    @heavy
    def test_large_file_streams(self):
        size = 64 << 20
        self.api.write(self.box, "/workspace/large", b"\xa5" * size)
        self.assertEqual(self.api.sh(self.box, "sha256sum < /workspace/large; head -c %d /dev/zero | tr '\\0' '\\245' | sha256sum" % size).split("\n")[0],
                         self.api.sh(self.box, "sha256sum < /workspace/large").strip())
        self.assertEqual(len(self.api.read(self.box, "/workspace/large")), size)
        self.api.delete(self.base, path="/workspace/large")

    def being_written(self):
        """The files below /workspace that processes of the init have open; one that has no name yet is called #INODE."""
        found = []
        for pid in inits_of(self.daemon.state):
            with contextlib.suppress(OSError):  # it has just ended, or closed one
                found += [path for fd in os.listdir(f"/proc/{pid}/fd") if "/workspace/" in (path := os.readlink(f"/proc/{pid}/fd/{fd}"))]
        return found

    def test_write_is_atomic(self):
        self.api.write(self.box, "/workspace/atomic", b"old")
        connection = self.api.connection()
        connection.putrequest("PUT", self.base + "?path=/workspace/atomic")
        connection.putheader("Content-Length", "1000000")
        connection.endheaders()
        connection.send(b"new" * 1000)
        wait_until(self.being_written, what="the file that it is written to first")
        self.assertEqual(self.api.read(self.box, "/workspace/atomic"), b"old")
        connection.close()
        wait_until(lambda: not self.being_written(), what="the end of that file")
        self.assertEqual(self.api.read(self.box, "/workspace/atomic"), b"old")
        self.assertEqual(self.api.sh(self.box, "ls -A /workspace | grep -c atomic"), "1\n")

    def test_modes_and_parents(self):
        self.refused(404, "file.not_found", self.api.write, self.box, "/workspace/no/parent", b"x")
        self.api.write(self.box, "/workspace/deep/er/script", b"#!/bin/sh\necho ran\n", parents=1, mode="0755")
        self.assertEqual(self.api.sh(self.box, "/workspace/deep/er/script"), "ran\n")
        self.api.write(self.box, "/workspace/deep/er/script", b"#!/bin/sh\necho again\n")
        self.assertEqual(self.api.sh(self.box, "stat -c %a /workspace/deep/er/script"), "755\n")

    @column_independent
    def test_append(self):
        self.api.write(self.box, "/workspace/log", b"a")
        self.api.write(self.box, "/workspace/log", b"b", append=1)
        self.assertEqual(self.api.read(self.box, "/workspace/log"), b"ab")

    @column_independent
    def test_no_replace(self):
        self.api.write(self.box, "/workspace/taken", b"1")
        self.refused(409, "file.exists", self.api.write, self.box, "/workspace/taken", b"2", no_replace=1)

    def test_special_files_never_block(self):
        self.api.sh(self.box, "mkfifo /workspace/fifo")
        began = time.monotonic()
        for path in ("/workspace/fifo", "/dev/tty", "/dev/zero", "/proc/self/fd/0"):
            with self.assertRaises(ApiError) as caught:
                self.api.read(self.box, path)
            self.assertIn(caught.exception.code, ("file.wrong_type", "file.not_found", "file.permission_denied"), path)
        self.assertLess(time.monotonic() - began, 30)

    def test_proc_files_can_be_read(self):
        self.assertIn(b"MemTotal", self.api.read(self.box, "/proc/meminfo"))

    def test_stat_list_names(self):
        self.api.sh(self.box, "mkdir -p /workspace/names; cd /workspace/names; printf 1 > 'a b'; printf 1 > \"$(printf 'new\\nline')\"; "
                              "printf 1 > \"$(printf 'bad\\377')\"; ln -s /etc link; mkfifo p; mkdir d")
        entries = {entry.get("name") or entry["name_base64"]: entry for entry in
                   self.api.get(self.base + "/list", path="/workspace/names")["entries"]}
        self.assertEqual(len(entries), 6)
        self.assertEqual(entries["link"]["type"], "symlink")
        self.assertEqual(entries["link"]["target"], "/etc")
        self.assertEqual(entries["d"]["type"], "directory")
        self.assertEqual(entries["new\nline"]["size"], 1)
        self.assertIn("YmFk/w==", entries)
        self.assertEqual(self.api.get(self.base + "/stat", path="/workspace/names/a b")["size"], 1)
        self.refused(404, "file.not_found", self.api.get, self.base + "/stat", path="/nowhere")

    def test_rename_copy_remove(self):
        self.api.sh(self.box, "rm -rf /workspace/t; mkdir -p /workspace/t/a/b; echo 1 > /workspace/t/a/b/f; ln -s b /workspace/t/a/l")
        self.api.post(self.base + "/copy", {"from": "/workspace/t/a", "to": "/workspace/t/c", "recursive": True})
        self.assertEqual(self.api.sh(self.box, "cat /workspace/t/c/b/f; readlink /workspace/t/c/l"), "1\nb\n")
        self.api.post(self.base + "/rename", {"from": "/workspace/t/c", "to": "/workspace/t/e"})
        self.refused(409, "file.exists", self.api.delete, self.base, path="/workspace/t/e")
        self.api.delete(self.base, path="/workspace/t/e", recursive=1)
        self.assertEqual(self.api.sh(self.box, "ls /workspace/t"), "a\n")

    def test_remove_does_not_follow_links(self):
        self.api.sh(self.box, "mkdir -p /workspace/keep; echo 1 > /workspace/keep/f; mkdir /workspace/gone; ln -s /workspace/keep /workspace/gone/l")
        self.api.delete(self.base, path="/workspace/gone", recursive=1)
        self.assertEqual(self.api.sh(self.box, "cat /workspace/keep/f"), "1\n")

    def test_links_modes_owners(self):
        self.api.post(self.base + "/symlink", {"path": "/workspace/ln", "target": "/etc/passwd"})
        self.assertEqual(self.api.get(self.base + "/readlink", path="/workspace/ln")["target"], "/etc/passwd")
        self.api.write(self.box, "/workspace/m", b"")
        self.api.post(self.base + "/chmod", {"path": "/workspace/m", "mode": "0640"})
        self.api.post(self.base + "/chown", {"path": "/workspace/m", "owner": "user:1000"})
        self.assertEqual(self.api.sh(self.box, "stat -c '%a %u %g' /workspace/m"), "640 1000 1000\n")

    @column_independent
    def test_glob(self):
        self.api.sh(self.box, "mkdir -p /workspace/g/x/y; cd /workspace/g; touch a.c b.h x/c.c x/y/d.c x/.hidden.c")
        def glob(pattern):
            return sorted(self.api.get(self.base + "/glob", path="/workspace/g", pattern=pattern)["paths"])
        self.assertEqual([p.split("/workspace/g/")[-1] for p in glob("**/*.c")], ["a.c", "x/c.c", "x/y/d.c"])
        self.assertEqual([p.split("/workspace/g/")[-1] for p in glob("*.[ch]")], ["a.c", "b.h"])
        self.assertEqual([p.split("/workspace/g/")[-1] for p in glob("*.{c,h}")], ["a.c", "b.h"])

    @column_independent
    def test_grep(self):
        self.api.write(self.box, "/workspace/grep.txt", b"one\ntwo needle\nNEEDLE three\n")
        def grep(**query):
            return [(m["line"], m["text"]) for m in self.api.get(self.base + "/grep", path="/workspace/grep.txt", **query)["matches"]]
        self.assertEqual(grep(pattern="needle"), [(2, "two needle")])
        self.assertEqual(grep(pattern="needle", ignore_case=1), [(2, "two needle"), (3, "NEEDLE three")])
        self.assertEqual(grep(pattern="^[a-z]+$", regex=1), [(1, "one")])
        self.assertEqual(grep(pattern=".*", regex=1, limit=1), [(1, "one")])
        self.refused(422, "pattern.invalid", grep, pattern="(", regex=1)

    @column_independent
    def test_replace(self):
        self.api.write(self.box, "/workspace/r", b"a.b a.b a.b")
        answer = self.api.post(self.base + "/replace", {"path": "/workspace/r", "old": "a.b", "new": "$1\\", "limit": 2})
        self.assertEqual(answer["count"], 2)
        self.assertEqual(self.api.read(self.box, "/workspace/r"), b"$1\\ $1\\ a.b")
        self.assertEqual(self.api.post(self.base + "/replace", {"path": "/workspace/r", "old": "zzz", "new": ""})["count"], 0)

    def test_paths_stay_inside(self):
        for path in ("/../../../etc/shadow", "/proc/1/root/etc/shadow", "/proc/self/root/etc/shadow"):
            with self.assertRaises(ApiError):
                self.api.read(self.box, path)
        self.refused(400, "request.invalid", self.api.read, self.box, "/a\0b")

    def test_as_user(self):
        self.api.sh(self.box, "echo secret > /root/private; chmod 600 /root/private")
        self.refused(403, "file.permission_denied", self.api.read, self.box, "/root/private", user="1000")

    def test_disk_full_is_typed(self):
        box = self.sandbox(disk_mb=32)
        self.refused(507, "file.no_space", self.api.write, box, "/workspace/big", b"x" * (40 << 20))
        wait_until(lambda: self.api.sh(box, "ls -A /workspace | wc -l") == "0\n", what="the end of what was written")

    @column_independent
    def test_watch(self):
        self.api.sh(self.box, "mkdir -p /workspace/w")
        response, connection = self.api.raw("GET", self.base + "/watch?path=/workspace/w&recursive=1")
        self.assertEqual(response.status, 200)
        events, done = [], threading.Event()

        def reader():
            while True:
                line = response.fp.readline()
                if not line:
                    break
                if line.startswith(b"data:"):
                    events.append(line.decode())
                    if "last" in events[-1]:
                        break
            done.set()
        thread = threading.Thread(target=reader)
        thread.start()
        wait_until(lambda: any("ready" in event for event in events), what="the watch's start")
        self.api.sh(self.box, "mkdir -p /workspace/w/a/b/c; echo 1 > /workspace/w/a/b/c/f; sleep 0.2; touch /workspace/w/last")
        self.assertTrue(done.wait(30), events)
        self.assertTrue(any("a/b/c" in event and "\"created\"" in event for event in events), events)
        connection.close()
        thread.join(5)

    @busy
    @long
    @column_independent
    def test_a_million_entries(self):
        box = self.sandbox(disk_mb=4096, timeout_seconds=1800)
        self.api.sh(box, "mkdir /tmp/m; cd /tmp/m; seq 1 60000 | xargs touch", timeout_seconds=600)
        answer = self.api.get(f"/v1/sandboxes/{box}/files/glob", path="/tmp/m", pattern="*", limit=100)
        self.assertEqual(len(answer["paths"]), 100)
        self.assertTrue(answer["truncated"])


if __name__ == "__main__":
    unittest.main()
