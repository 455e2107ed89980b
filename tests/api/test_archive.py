"""A directory as a tar archive, both ways: compared with Python's tarfile, plain and zstd, and archives that
somebody made to do harm."""
import io
import os
import subprocess
import tarfile
import unittest
import urllib.parse

from caisson import ApiError, DaemonTest

TREE = r"""
set -e; rm -rf /workspace/tree; mkdir -p /workspace/tree/deep/er /workspace/tree/empty; cd /workspace/tree
printf hello > plain; chmod 640 plain; : > nothing; printf '#!/bin/sh\n' > run; chmod 4755 run
head -c 300000 /dev/urandom > deep/er/random; ln deep/er/random deep/linked; ln -s ../plain deep/soft; ln -s /nowhere/at/all dangling
mkfifo fifo; printf x > "$(printf 'sp ace\303\251')"
long=$(printf 'n%.0s' $(seq 200)); mkdir $long; printf long > $long/$long; ln -s $long/$long/$long far
chown 1234:5678 plain; chown -h 7:8 dangling; chmod 1777 empty; chmod 500 deep
touch -d '2001-02-03 04:05:06.123456789' plain deep/er; touch -d '1969-12-31 23:59:58.5' nothing; touch -d '2400-01-01' run
"""


def zstd(data, *arguments):
    return subprocess.run(["zstd", "-q", "-c", *arguments], input=data, capture_output=True, check=True, timeout=60).stdout


def entry(name, kind=tarfile.REGTYPE, data=b"", link="", **fields):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(data), link
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def archive(*entries, form=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as made:
        for info, data in entries:
            made.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Archive(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.box = cls.api.create(timeout_seconds=3600, disk_mb=256)["id"]
        cls.base = f"/v1/sandboxes/{cls.box}/files/archive"

    def pack(self, path, **query):
        response, connection = self.api.raw("GET", self.base + "?" + urllib.parse.urlencode({"path": path, **query}))
        data = response.read()
        connection.close()
        if response.status != 200:
            raise ApiError(response.status, __import__("json").loads(data), dict(response.getheaders()))
        return data

    def unpack(self, path, data, **query):
        return self.api.put(self.base, data, path=path, **query)

    def listing(self, path):
        """Everything that an archive keeps, of a tree in the sandbox."""
        return self.api.sh(self.box, f"cd {path} && find . ! -type p -printf '%P|%y|%m|%U|%G|%s|%T@|%l|%n\\n' | "
                           "sed 's/^\\([^|]*|d|[^|]*|[^|]*|[^|]*|\\)[0-9]*/\\1/; s/^\\([^|]*|d|.*|\\)[0-9]*$/\\1/' | sort; "
                           "find . -type f | sort | xargs -d '\\n' sha256sum")

    def test_what_is_packed_is_what_is_there(self):
        self.api.sh(self.box, TREE)
        got = {info.name: info for info in tarfile.open(fileobj=io.BytesIO(self.pack("/workspace/tree")))}
        plain = got["plain"]
        self.assertEqual((plain.mode, plain.uid, plain.gid, plain.size), (0o640, 1234, 5678, 5))
        self.assertEqual(plain.pax_headers["mtime"], "981173106.123456789")
        self.assertEqual(got["nothing"].pax_headers["mtime"], "-1.500000000")
        self.assertEqual(got["run"].mode, 0o4755)
        self.assertEqual(got["run"].mtime, 13569465600)
        self.assertTrue(got["empty"].isdir() and got["."].isdir())
        self.assertEqual(got["dangling"].linkname, "/nowhere/at/all")
        self.assertEqual((got["dangling"].uid, got["dangling"].gid), (7, 8))
        self.assertEqual(got["deep/soft"].linkname, "../plain")
        self.assertEqual(sorted((got["deep/linked"].islnk(), got["deep/er/random"].islnk())), [False, True])
        self.assertIn("sp aceé", got)
        long = "n" * 200
        self.assertIn(f"{long}/{long}", got)
        self.assertEqual(got["far"].linkname, "/".join([long] * 3))
        self.assertNotIn("fifo", got)

    def test_there_and_back(self):
        self.api.sh(self.box, TREE)
        for form in ("tar", "tar.zst"):
            data = self.pack("/workspace/tree", format=form)
            if form == "tar.zst":
                plain = zstd(data, "-d")
                self.assertEqual(len(list(tarfile.open(fileobj=io.BytesIO(plain)))), 15)
            self.api.sh(self.box, "rm -rf /workspace/copy")
            result = self.unpack("/workspace/copy", data, format=form)
            self.assertEqual((result["entries"], result["skipped"]), (15, 0))
            self.assertEqual(self.listing("/workspace/copy"), self.listing("/workspace/tree"))

    def test_what_python_packs(self):
        for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
            name = "p" * 90 + "/" + "q" * 90
            data = archive(entry("d/", tarfile.DIRTYPE, mode=0o750, mtime=1000), entry("d/f", data=b"1" * 1025, mode=0o604, mtime=77),
                           entry(name, data=b"long"), entry("s", tarfile.SYMTYPE, link="d/f"), entry("h", tarfile.LNKTYPE, link="d/f"),
                           entry("dev", tarfile.CHRTYPE), entry("implied/dir/file", data=b"x", uid=5, gid=6), form=form)
            self.api.sh(self.box, "rm -rf /workspace/py")
            result = self.unpack("/workspace/py/thon", data)
            self.assertEqual(result, {"path": "/workspace/py/thon", "entries": 6, "bytes": 1030, "skipped": 1})
            text = self.api.sh(self.box, f"cd /workspace/py/thon; stat -c '%n %a %Y %h' d d/f; stat -c '%U:%G %u:%g' implied/dir/file; "
                               f"cat {name}; readlink s; ls -A; stat -c %a implied")
            self.assertEqual(text, "d 750 1000 2\nd/f 604 77 2\nUNKNOWN:UNKNOWN 5:6\n".replace("UNKNOWN:UNKNOWN", text.split("\n")[2].split()[0]) +
                             "longd/f\nd\nh\nimplied\n" + "p" * 90 + "\ns\n755\n")
        large = archive(*[entry(f"many/{i}", data=b"%d" % i) for i in range(1500)])
        self.assertEqual(self.unpack("/workspace/many", large)["entries"], 1500)
        self.assertEqual(self.api.sh(self.box, "cat /workspace/many/many/1499; ls /workspace/many/many | wc -l"), "14991500\n")

    def test_an_old_file_is_replaced_and_a_link_is_not_followed(self):
        self.api.sh(self.box, "rm -rf /workspace/r; mkdir -p /workspace/r/d; cd /workspace/r; echo outside > ../outside; "
                    "ln -s ../outside f; echo old > g; chmod 711 .; ln g g2")
        self.unpack("/workspace/r", archive(entry("./", tarfile.DIRTYPE, mode=0o700), entry("f", data=b"new"), entry("g", data=b"new"),
                                            entry("d", tarfile.DIRTYPE, mode=0o755), entry("g3", tarfile.LNKTYPE, link="g"),
                                            entry("g3", tarfile.LNKTYPE, link="./g")))
        self.assertEqual(self.api.sh(self.box, "cd /workspace/r; cat ../outside f g g2; stat -c %a .; stat -c %h g; ls -A"),
                         "outside\nnewnewold\n711\n2\nd\nf\ng\ng2\ng3\n")

    def test_hostile_archives(self):
        good = entry("good", data=b"good")
        link = entry("out", tarfile.SYMTYPE, link="/workspace/victim")
        raw = bytearray(archive(entry("a", data=b"x" * 600)))
        broken = bytes(raw[:156]) + b"9" + bytes(raw[157:])
        huge = entry("n" * 5000)
        pax = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
        table = {
            "dotdot": (archive(good, entry("../victim/f", data=b"!")), "leads out", True),
            "dotdot inside": (archive(good, entry("a/../../victim/f", data=b"!")), "leads out", True),
            "absolute": (archive(good, entry("/workspace/victim/f", data=b"!")), "absolute", True),
            "through a link": (archive(good, link, entry("out/f", data=b"!")), "a link", True),
            "a directory through a link": (archive(good, link, entry("out/d/", tarfile.DIRTYPE)), "a link", True),
            "a link for a directory": (archive(good, link, entry("out", tarfile.DIRTYPE)), "a link", True),
            "hard link out": (archive(good, entry("h", tarfile.LNKTYPE, link="../victim/secret")), "leads out", True),
            "hard link absolute": (archive(good, entry("h", tarfile.LNKTYPE, link="/workspace/victim/secret")), "absolute", True),
            "hard link through a link": (archive(good, link, entry("h", tarfile.LNKTYPE, link="out/secret")), "a link", True),
            "cut short": (archive(good, entry("f", data=b"x" * 5000))[:3000], "cut short", True),
            "cut at an entry": (archive(good)[:1024], "cut short", True),
            "no end": (archive(good)[:1024] + b"\0" * 512, "cut short", True),
            "checksum": (b"x" + bytes(raw[1:]), "not a tar header", False),
            "type": (broken, "not a tar header", False),
            "not tar at all": (b"this is no archive" * 100, "not a tar header", False),
            "empty": (b"", "cut short", False),
            "name too long": (archive(huge), "out of range", False),
            "sparse": (archive(entry("s", data=b"s", pax_headers=pax)), "sparse", False),
            "negative size": (archive(entry("s", pax_headers={"size": "-1"})), "out of range", False),
            "size overflow": (archive(entry("s", pax_headers={"size": "99999999999999999999"})), "out of range", False),
            "pax bomb": (archive(entry("s", pax_headers={"comment": "x" * 70000})), "too long", False),
        }
        for name, (data, words, made) in table.items():
            for form in ("tar", "tar.zst"):
                with self.subTest(name, form=form):
                    self.api.sh(self.box, "rm -rf /workspace/t /workspace/victim; mkdir /workspace/victim; echo s > /workspace/victim/secret")
                    error = self.refused(422, "archive.invalid", self.unpack, "/workspace/t", zstd(data) if form == "tar.zst" else data,
                                         format=form)
                    self.assertIn(words, error.body["error"])
                    self.assertEqual(self.api.sh(self.box, "ls -A /workspace/victim; stat -c %h /workspace/victim/secret; "
                                                 "cat /workspace/t/good 2>/dev/null || echo none; ls -A /workspace | grep caisson || true"),
                                     "secret\n1\n" + ("good" if made else "none\n"))

    def test_the_error_names_the_entry(self):
        error = self.refused(422, "archive.invalid", self.unpack, "/workspace/n", archive(entry("some/../../name")))
        self.assertIn("some/../../name", error.body["error"])
        error = self.refused(422, "file.wrong_type", self.unpack, "/etc/passwd", archive(entry("f")))
        self.api.sh(self.box, "mkdir -p /workspace/n2/f")
        error = self.refused(422, "file.wrong_type", self.unpack, "/workspace/n2", archive(entry("f", data=b"1")))
        self.assertIn("f: is a directory", error.body["error"])

    def test_zstd_that_is_not_whole(self):
        good = zstd(archive(entry("f", data=os.urandom(100000))))
        for data, words in ((good[:-1], "cut short"), (good[:50], "cut short"), (b"", "cut short"), (b"nonsense" * 9, "damaged"),
                            (good[:5000] + b"\xff" * 40 + good[5040:], "damaged"),
                            (zstd(b"0" * (32 << 20), "--ultra", "-22", "--long=27"), "damaged")):
            error = self.refused(422, "archive.invalid", self.unpack, "/workspace/z", data, format="tar.zst")
            self.assertIn(words, error.body["error"])
        # Two frames are one stream.
        whole = archive(entry("two", data=b"frames"))
        self.unpack("/workspace/z", zstd(whole[:700]) + zstd(whole[700:]), format="tar.zst")
        self.assertEqual(self.api.read(self.box, "/workspace/z/two"), b"frames")

    def test_a_bomb_ends_at_the_disk(self):
        info, _ = entry("bomb")
        info.size = 8 << 30
        head = info.tobuf(tarfile.PAX_FORMAT)
        # 8 GiB of zeros: frames of 64 MiB one after the other.
        frame = zstd(b"\0" * (64 << 20))
        error = self.refused(507, "file.no_space", self.unpack, "/workspace/bomb", zstd(head) + frame * 128, format="tar.zst")
        self.assertIn("bomb", error.body["error"])
        self.assertEqual(self.api.sh(self.box, "ls -A /workspace/bomb"), "")

    def test_as_an_ordinary_user(self):
        data = archive(entry("run", data=b"x", mode=0o6755, uid=0, gid=0), entry("d", tarfile.DIRTYPE, mode=0o2500), entry("d/f", data=b"y"))
        self.api.sh(self.box, "rm -rf /workspace/u; mkdir /workspace/u; chown 1000:1000 /workspace/u")
        self.unpack("/workspace/u", data, user="1000:1000")
        self.assertEqual(self.api.sh(self.box, "cd /workspace/u; stat -c '%n %a %u:%g' run d d/f"),
                         "run 755 1000:1000\nd 500 1000:1000\nd/f 644 1000:1000\n")
        self.refused(403, "file.permission_denied", self.unpack, "/etc/new", data, user="1000")
        self.api.sh(self.box, "mkdir -p /workspace/closed; chmod 700 /workspace/closed")
        self.refused(403, "file.permission_denied", self.pack, "/workspace/closed", user="1000")

    def test_what_is_refused(self):
        self.refused(400, "request.invalid", self.pack, "/workspace", format="zip")
        self.refused(400, "request.invalid", self.unpack, "/workspace", b"", format="tar.gz")
        self.refused(404, "file.not_found", self.pack, "/workspace/missing")
        self.refused(422, "file.wrong_type", self.pack, "/dev/null")
        self.api.write(self.box, "/workspace/one", b"1")
        (one,) = tarfile.open(fileobj=io.BytesIO(self.pack("/workspace/one")))
        self.assertEqual((one.name, one.size), ("one", 1))

    def test_a_client_that_leaves(self):
        self.api.sh(self.box, "head -c 20000000 /dev/urandom > /workspace/big")
        for form in ("tar", "tar.zst"):
            response, connection = self.api.raw("GET", f"{self.base}?path=/workspace/big&format={form}", checked=False)
            response.read(1000)
            connection.sock.close() if connection.sock else response.close()
            connection.close()
            connection = self.api.connection()
            connection.putrequest("PUT", f"{self.base}?path=/workspace/left&format={form}")
            connection.putheader("Content-Length", "100000")
            connection.endheaders()
            connection.send(archive(entry("half", data=b"x" * 20000))[:9000])
            connection.close()
        self.assertEqual(self.api.sh(self.box, "rm /workspace/big; ls -A /workspace/left 2>/dev/null | grep half || echo gone"), "gone\n")


if __name__ == "__main__":
    unittest.main()
