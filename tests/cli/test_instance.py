"""Which daemon serves which directories: one with another's state leaves sandboxes alone, one that is started for good
takes over from one that a client has started, and what a daemon says of its sandboxes is true."""
import fcntl
import glob
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

from caisson import OwnDaemons, PROGRAM, has_ended, status_of, wait_until
from marks import long


def lives(pid):
    return os.path.exists(f"/proc/{pid}")


def try_lock(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


class Instance(OwnDaemons):
    def other_state(self, daemon):
        """A directory for a state beside the daemon's own."""
        other = os.path.join(daemon.top, "other")
        self.addCleanup(shutil.rmtree, other, ignore_errors=True)
        return other

    def test_runtime_of_another_state(self):
        """A client that knows the runtime directory alone must not end what runs there."""
        daemon = self.start_daemon()
        box = daemon.client().create()["id"]
        init = daemon.init_of(box)
        daemon.stop()
        other = self.other_state(daemon)
        served = subprocess.run([PROGRAM, "serve", "--config", daemon.config, "--state", other, "--runtime", daemon.runtime,
                                 "--listen", "none"], capture_output=True, text=True, timeout=30)
        self.assertEqual(served.returncode, 125, served.stderr)
        for part in (daemon.state, other, daemon.runtime, "--state"):
            self.assertIn(part, served.stderr)
        code, _, err = daemon.cli("ls", environment={"CAISSON_STATE": other})
        self.assertEqual(code, 125, err)
        self.assertIn(f"sandboxes of the state directory {daemon.state}", err)
        self.assertTrue(lives(init))
        daemon.start()
        self.assertEqual(daemon.client().get("/v1/sandboxes/" + box)["status"], "running")
        self.assertEqual(daemon.init_of(box), init)

    @long
    def test_runtime_that_nothing_lives_in(self):
        """Whose sandboxes were there once does not matter."""
        daemon = self.start_daemon()
        box = daemon.client().create()["id"]
        init = daemon.init_of(box)
        daemon.stop()
        os.kill(init, signal.SIGKILL)
        wait_until(lambda: not lives(init), what="its end")
        own_state, daemon.state = daemon.state, self.other_state(daemon)
        daemon.start()
        self.assertEqual(daemon.client().get("/v1/sandboxes")["items"], [])
        daemon.stop()
        daemon.state = own_state

    def serve_from(self, daemon, runtime):
        """A start with the daemon's state and another runtime directory, which must be refused."""
        served = subprocess.run([PROGRAM, "serve", "--config", daemon.config, "--state", daemon.state, "--runtime", runtime,
                                 "--listen", "none"], capture_output=True, text=True, timeout=30)
        self.assertEqual(served.returncode, 125, served.stderr)
        self.assertIn(f"sandboxes of the state directory {daemon.state} are running from the runtime directory {daemon.runtime}, "
                      f"not from {runtime}", served.stderr)
        self.assertIn(f"--runtime {daemon.runtime}", served.stderr)
        self.assertFalse(os.path.exists(runtime))
        return served.stderr

    def test_state_of_another_runtime(self):
        """What runs is found by one runtime directory alone: from another it is neither lost nor run twice."""
        daemon = self.start_daemon()
        box = daemon.client().create()["id"]
        init, other = daemon.init_of(box), os.path.join(daemon.top, "run2")
        for end in (daemon.stop, daemon.kill):
            end()
            self.serve_from(daemon, other)
            self.serve_from(daemon, other)  # the refused one has changed nothing
            code, _, err = daemon.cli("exec", box, "--", "true", environment={"CAISSON_RUNTIME": other})
            self.assertEqual(code, 125, err)
            self.assertIn(f"are running from the runtime directory {daemon.runtime}", err)
            shutil.rmtree(other)  # with the client's log
            with open(os.path.join(daemon.state, "lock"), "a") as lock:
                lock.write(f"runtime {daemon.top}/older\n")  # as a start leaves it that is killed between write and truncate
            self.serve_from(daemon, other)
            self.assertTrue(lives(init))
            daemon.start()
            self.assertEqual(daemon.client().get("/v1/sandboxes/" + box)["status"], "running")
            self.assertEqual(daemon.init_of(box), init)

    def test_another_runtime_asks_nobody_to_leave(self):
        daemon = self.start_daemon(arguments=["--idle-exit", "60"])
        box = daemon.client().create()["id"]
        self.assertNotIn("asking it to quit", self.serve_from(daemon, os.path.join(daemon.top, "run2")))
        self.assertIsNone(daemon.process.poll())
        self.assertEqual(daemon.client().sh(box, "echo on"), "on\n")

    def test_another_runtime_when_nothing_runs(self):
        """Stopped ones, a pool and a runtime directory that is gone do not hold a state directory."""
        daemon = self.start_daemon("[pool]\nsize = 1\n", arguments=["--idle-exit", "60"])
        box = daemon.client().create()["id"]
        daemon.client().sh(box, "echo kept > /workspace/x")
        daemon.client().post(f"/v1/sandboxes/{box}/stop")
        wait_until(daemon.pool_ready, what="a pool")
        first, own, daemon.arguments = daemon.process, daemon.runtime, []
        daemon.runtime = os.path.join(daemon.top, "run2")
        daemon.start()
        self.assertEqual(first.wait(30), 0)
        self.assertEqual(daemon.client().sh(box, "cat /workspace/x"), "kept\n")
        init = daemon.init_of(box)
        daemon.stop()
        # The state directory has it from the new one now.
        self.serve_from(daemon, own)
        os.kill(init, signal.SIGKILL)
        wait_until(lambda: not lives(init), what="its end")
        shutil.rmtree(daemon.runtime)
        # Below /tmp anybody may take its place then.
        record = os.path.join(daemon.runtime, "guests", box, "boot")
        os.makedirs(os.path.dirname(record))
        with open(record, "w") as file, open("/proc/self/stat") as stat:
            file.write(f"caisson-boot 1\npid {os.getpid()}\nstart_time {stat.read().rpartition(')')[2].split()[19]}\n")
        self.serve_from(daemon, own)
        os.chown(daemon.runtime, 65534, 65534)
        daemon.runtime = own
        daemon.start()
        self.assertEqual(daemon.client().sh(box, "cat /workspace/x"), "kept\n")

    def test_a_killed_one_that_is_not_reaped_yet(self):
        """Whoever still holds its lock is about to end with it: the next start waits for that."""
        daemon = self.start_daemon()
        dead = daemon.process
        os.kill(daemon.daemon_pid(), signal.SIGKILL)
        dead.kill()
        wait_until(lambda: has_ended(dead.pid), what="its end")  # and a zombie until it is waited for
        with open(os.path.join(daemon.state, "lock")) as lock:
            wait_until(lambda: try_lock(lock), what="the end of its workers")
            daemon.start(wait=False)
            # It sleeps between two tries.
            wait_until(lambda: int(status_of(daemon.process.pid).get("voluntary_ctxt_switches", 1000)) > 100, what="many tries")
            self.assertIsNone(daemon.process.poll(), daemon.log())
        daemon.wait_ready()
        dead.wait()

    def test_takes_over_from_one_that_a_client_started(self):
        daemon = self.start_daemon(arguments=["--idle-exit", "60"])
        api = daemon.client()
        box = api.create()["id"]
        api.sh(box, "echo kept > /tmp/x; sleep 1000 > /dev/null 2>&1 & until pgrep -x sleep; do :; done")
        init, first = daemon.init_of(box), daemon.process
        daemon.arguments = []
        daemon.start(wait=False)
        self.assertEqual(first.wait(30), 0)
        daemon.wait_ready()
        self.assertIn("asking it to quit", daemon.log())
        self.assertEqual(daemon.init_of(box), init)
        self.assertEqual(api.sh(box, "cat /tmp/x; pgrep -c sleep"), "kept\n1\n")

    def test_nobody_takes_over_from_one_that_serves_for_good(self):
        daemon = self.start_daemon()
        for arguments in ([], ["--idle-exit", "60"]):
            second = subprocess.run([PROGRAM, "serve", "--config", daemon.config, "--state", daemon.state, "--runtime",
                                     daemon.runtime, "--listen", "none", *arguments], capture_output=True, text=True, timeout=30)
            self.assertEqual(second.returncode, 125, second.stderr)
            self.assertIn(f"another caisson (pid {daemon.process.pid})", second.stderr)
        self.assertIsNone(daemon.process.poll())

    def test_log_of_a_life(self):
        """Created, stopped, started, ended: each is said, and a stop is not called an accident."""
        daemon = self.start_daemon()
        api = daemon.client()
        box = api.create()["id"]
        for verb in ("stop", "start"):
            api.post(f"/v1/sandboxes/{box}/{verb}")
        for _ in range(20):
            api.sh(box, "true")
        api.delete("/v1/sandboxes/" + box)
        log = daemon.log()
        for words in ("is created (namespace", "is stopped", "is started (namespace", "has ended: user"):
            self.assertIn(f"sandbox {box} {words}", log)
        self.assertNotIn("by itself", log)
        self.assertNotIn("have ended", log)
        self.assertNotRegex(log, r"turn of the loop took [1-4]?\d ms")

    def test_a_terminal_is_not_the_daemons_to_read(self):
        """Root's `caisson serve` in a terminal: what is typed there is for no process that strangers talk to."""
        ours, theirs = os.openpty()
        self.addCleanup(os.close, ours)
        self.addCleanup(os.close, theirs)
        daemon = self.start_daemon(wrapper=["sh", "-c", f'exec "$@" 2<>{os.ttyname(theirs)} >&2', "sh"])
        for fd in (1, 2):
            path = f"/proc/{daemon.daemon_pid()}/fd/{fd}"
            self.assertEqual(os.readlink(path), os.ttyname(theirs))
            with open(path.replace("/fd/", "/fdinfo/")) as file:
                flags, = [int(line.split()[1], 8) for line in file if line.startswith("flags:")]
            self.assertEqual(flags & os.O_ACCMODE, os.O_WRONLY)
        with open(daemon.log_path, "wb") as log:  # where what it leaves behind is looked up
            log.write(os.read(ours, 65536))

    def test_too_few_open_files(self):
        """An ordinary user cannot have more than the limit says: better told than found out descriptor by descriptor."""
        daemon = self.new_daemon(check=False)
        served = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "prlimit", "--nofile=64:64", PROGRAM, "serve",
                                 "--config", daemon.config, "--state", daemon.state, "--runtime", daemon.runtime, "--listen", "none"],
                                capture_output=True, text=True, timeout=30, env={**os.environ, "HOME": "/nonexistent"})
        self.assertEqual(served.returncode, 125, served.stderr)
        self.assertIn("may have 64 open files, and a daemon needs at least 256", served.stderr)
        self.assertFalse(os.path.exists(daemon.state))

    def test_state_on_ext2(self):
        """Its mounts cannot be idmapped: that is said, with what would do."""
        image = tempfile.NamedTemporaryFile()
        self.addCleanup(image.close)
        os.truncate(image.name, 64 << 20)
        subprocess.run(["/sbin/mke2fs", "-q", "-t", "ext2", "-F", image.name], check=True)
        # In a mount namespace of its own, with which it goes.
        daemon = self.new_daemon("[pool]\nsize = 0\nmax = 0\n")
        daemon.wrapper = ["unshare", "--mount", "sh", "-c", f'mkdir -p {daemon.state} && mount -o loop {image.name} {daemon.state} && exec "$@"', "sh"]
        daemon.start()
        code, _, err = daemon.cli("run", "true")
        self.assertEqual(code, 125, err)
        self.assertIn("cannot show files as another user's (idmapped mounts; ext2 cannot): use one on ext4", err)


if __name__ == "__main__":
    unittest.main()
