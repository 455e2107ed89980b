# The interpreter of a python code context: reads cells from standard input, runs them in one
# namespace, and reports on the control channel (core/code/records.h). Runs inside the sandbox, for
# python 3.8 and later, with nothing but its standard library. Standard output and standard error
# belong to the user's code alone.
#
# The user's code is in the same process and can do as it likes with all of this; it harms its own
# context only. The daemon takes what comes for the bytes of a stranger.
def caisson_driver():
    import sys

    # A json.py in the working directory is for the user's code, not for this.
    first = sys.path.pop(0) if sys.path and sys.path[0] == "" else None
    import ast
    import builtins
    import fcntl
    import io
    import json
    import linecache
    import os
    import signal
    import termios
    import threading
    import time
    import traceback
    import types

    if first is not None:
        sys.path.insert(0, first)

    OWN = "<caisson>"
    RESULTS_MAX = 64
    BYTES_MAX = 8 << 20
    TEXT_MAX = 1 << 20
    ERROR_MAX = 256 << 10
    once = os.environ.pop("CAISSON_ONCE", "") == "1"
    os.environ.setdefault("MPLBACKEND", "Agg")
    # Debian's matplotlib does not start without this file, which an image may not have.
    if not os.path.exists("/etc/matplotlibrc"):
        os.environ.setdefault("MATPLOTLIBRC", os.devnull)

    class State:
        running = False  # the user's code is: an interrupt is for it
        shield = 0  # a record is being written: an interrupt waits
        pending = False
        forked = False  # this is a child that the user's code made
        cell = 0
        last = 0
        results = 0
        sent = 0
        flags = 0
        loop = None
        before = frozenset()

    state = State()
    lock = threading.RLock()
    runner = os.getppid()

    # The request channel and both streams under numbers of our own; what the user's code and its
    # children find as standard input is empty.
    requests = os.dup(0)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    kept = {1: os.dup(1), 2: os.dup(2)}
    control = -1
    buffered = b""

    def read_line():
        nonlocal buffered
        while b"\n" not in buffered:
            data = os.read(requests, 65536)
            if not data:
                return None
            buffered += data
        line, buffered = buffered.split(b"\n", 1)
        return line

    def record(kind, index, key, payload=b""):
        if state.forked:
            return
        head = "%s %d %d %s %d\n" % (kind, state.cell, index, key, len(payload))
        data = memoryview(head.encode() + payload + b"\n")
        with lock:
            state.shield += 1
            try:
                while data:
                    data = data[os.write(control, data) :]
            except OSError:
                os._exit(70)
            finally:
                state.shield -= 1
        if state.pending and not state.shield:
            state.pending = False
            raise KeyboardInterrupt

    # --- processes of a cell ---

    def processes():
        parents = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open("/proc/%s/stat" % name, "rb") as file:
                    parents[int(name)] = int(file.read().rsplit(b")", 1)[1].split()[1])
            except (OSError, IndexError, ValueError):
                pass
        ours = set()
        for pid in parents:
            chain, at = [], pid
            while at in parents and at not in ours and at != runner and len(chain) < 1000:
                chain.append(at)
                at = parents[at]
            if at == runner or at in ours:
                ours.update(chain)
        return ours - {os.getpid()}

    def kill_new():
        try:
            for pid in processes() - state.before:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
        except OSError:
            pass

    def on_interrupt(number, frame):
        if state.forked:
            raise KeyboardInterrupt
        if not state.running:
            return
        kill_new()
        if state.shield:
            state.pending = True
            return
        raise KeyboardInterrupt

    def in_child():
        state.forked = True
        for fd in (control, requests):
            try:
                os.close(fd)
            except OSError:
                pass

    os.register_at_fork(after_in_child=in_child)

    # --- results ---

    METHODS = (
        ("_repr_html_", "text/html"),
        ("_repr_markdown_", "text/markdown"),
        ("_repr_latex_", "text/latex"),
        ("_repr_svg_", "image/svg+xml"),
        ("_repr_png_", "image/png"),
        ("_repr_jpeg_", "image/jpeg"),
        ("_repr_pdf_", "application/pdf"),
        ("_repr_json_", "application/json"),
        ("_repr_javascript_", "application/javascript"),
    )
    BINARY = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")

    def as_bytes(kind, value):
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        if kind.endswith("json") and not isinstance(value, str):
            return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        text = value if isinstance(value, str) else str(value)
        if kind in BINARY:
            import base64

            return base64.b64decode(text)
        return text.encode("utf-8", "replace")

    def plain_json(value, depth=0):
        if depth > 24:
            return False
        if value is None or isinstance(value, (str, bool, int, float)):
            return True
        if type(value) is dict:
            return all(type(k) is str and plain_json(v, depth + 1) for k, v in value.items())
        return type(value) in (list, tuple) and all(plain_json(v, depth + 1) for v in value)

    def figure_png(figure):
        with io.BytesIO() as file:
            figure.savefig(file, format="png", bbox_inches="tight")
            return file.getvalue()

    def is_figure(value):
        module = sys.modules.get("matplotlib.figure")
        return module is not None and isinstance(value, module.Figure)

    def forms(value):
        """(kind, bytes) for each form that the value has."""
        bundle = getattr(value, "_repr_mimebundle_", None)
        if callable(bundle) and not isinstance(value, type):
            try:
                made = bundle()
                made = made[0] if isinstance(made, tuple) else made
                for kind, form in dict(made or {}).items():
                    yield str(kind), as_bytes(str(kind), form)
            except Exception:
                pass
        for method, kind in METHODS:
            function = None if isinstance(value, type) else getattr(value, method, None)
            if not callable(function):
                continue
            try:
                form = function()
                form = form[0] if isinstance(form, tuple) else form
                if form is not None:
                    yield kind, as_bytes(kind, form)
            except Exception:
                pass
        if is_figure(value):
            yield "image/png", figure_png(value)
        if type(value) in (dict, list, tuple) and plain_json(value):
            try:
                yield "application/json", as_bytes("application/json", value)
            except (ValueError, RecursionError):
                pass
        yield "text/plain", as_bytes("text/plain", repr(value))

    def kind_valid(kind):
        return 0 < len(kind) <= 100 and all(
            c.isascii() and (c.isalnum() or c in "/+.-_;=") for c in kind
        )

    def send(index, kind, data):
        size = len(data)
        if kind.startswith("text/") and size > TEXT_MAX:
            record("left", index, kind, b"%d" % size)
            data = data[:TEXT_MAX].decode("utf-8", "ignore").encode()
        if state.sent + len(data) > BYTES_MAX:
            if size <= TEXT_MAX or not kind.startswith("text/"):
                record("left", index, kind, b"%d" % size)
            return
        state.sent += len(data)
        record("data", index, kind, data)

    def show(value):
        if state.forked:
            return
        index = state.results
        state.results += 1
        if index >= RESULTS_MAX:
            return
        seen = set()
        for kind, data in forms(value):
            if kind not in seen and kind_valid(kind):
                seen.add(kind)
                send(index, kind, data)
        record("whole", index, "-")
        if is_figure(value) and "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close(value)

    def display(*values, **ignored):
        """Shows each value among the results of the cell."""
        for value in values:
            show(value)

    def show_figures(*ignored, **more):
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None or not hasattr(pyplot, "get_fignums") or state.forked:
            return
        for number in pyplot.get_fignums():
            show(pyplot.figure(number))
        pyplot.close("all")

    class PyplotFinder:
        """plt.show() is to give results, and not a warning that there is no screen."""

        def find_spec(self, name, path=None, target=None):
            if name != "matplotlib.pyplot":
                return None
            import importlib.util

            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            if spec is not None and hasattr(spec.loader, "exec_module"):
                load = spec.loader.exec_module

                def exec_module(module):
                    load(module)
                    module.show = show_figures

                spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, PyplotFinder())

    # --- standard input ---

    def no_input(*ignored):
        raise EOFError("code in a sandbox has no standard input: input() cannot be answered")

    class NoInput(io.TextIOWrapper):
        def readline(self, *ignored):
            no_input()

    builtins.input = no_input
    builtins.display = display
    sys.stdin = NoInput(open(os.devnull, "rb"), encoding="utf-8")

    # --- errors ---

    def clean(report, top):
        frames = [frame for frame in report.stack if frame.filename != OWN]
        if top:
            while frames and not frames[0].filename.startswith("<cell "):
                frames.pop(0)
        report.stack[:] = frames
        for inner in (report.__cause__, report.__context__):
            if inner is not None:
                clean(inner, False)
        for inner in getattr(report, "exceptions", None) or ():
            clean(inner, False)

    def report_error(error):
        try:
            report = traceback.TracebackException(type(error), error, error.__traceback__)
            clean(report, True)
            text = "".join(report.format())
        except Exception as second:
            text = "%s (its traceback cannot be shown: %r)\n" % (type(error).__name__, second)
        try:
            value = str(error)
        except Exception:
            value = "(its text cannot be had)"
        if state.forked:
            os.write(2, text.encode("utf-8", "replace"))
            return
        for key, part in (("name", type(error).__name__), ("value", value), ("traceback", text)):
            part = part.encode("utf-8", "replace")
            if len(part) > ERROR_MAX:
                half = ERROR_MAX // 2
                part = part[:half] + b"\n...\n" + part[-half:]
                part = part.decode("utf-8", "ignore").encode()
            record("error", 0, key, part)

    # --- a cell ---

    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    AWAIT = getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)
    import __future__

    FUTURE = 0
    for feature in __future__.all_feature_names:
        FUTURE |= getattr(__future__, feature).compiler_flag

    def evaluate(code):
        value = eval(code, main.__dict__)
        state.flags |= code.co_flags & FUTURE
        if not code.co_flags & 0x80:  # CO_COROUTINE: it awaits
            return value
        import asyncio

        if state.loop is None or state.loop.is_closed():
            state.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(state.loop)
        task = state.loop.create_task(value)
        try:
            return state.loop.run_until_complete(task)
        finally:
            if not task.done():
                task.cancel()

    def execute(number, source):
        name = "<cell %d>" % number
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        flags = AWAIT | state.flags
        tree = compile(source, name, "exec", flags | ast.PyCF_ONLY_AST, True)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        if tree.body:
            evaluate(compile(tree, name, "exec", flags, True))
        if last is None:
            return
        code = compile(ast.Expression(last.value), name, "eval", flags | state.flags, True)
        value = evaluate(code)
        if value is not None:
            main._ = value
            show(value)

    def exit_code(error):
        if error.code is None:
            return 0
        if isinstance(error.code, int):
            return error.code & 255
        print(error.code, file=sys.stderr)
        return 1

    def guarded(function, *arguments):
        """What becomes of the cell: its exit code."""
        try:
            state.running = True
            function(*arguments)
            return 0
        except SystemExit as error:
            return exit_code(error)
        except KeyboardInterrupt as error:
            state.running = False
            report_error(error)
            return 130
        except BaseException as error:
            state.running = False
            report_error(error)
            return 1
        finally:
            state.running = False

    def flush():
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass

    def restore_streams():
        """A cell may have closed or replaced what the next one prints to."""
        for fd, own in kept.items():
            try:
                now, before = os.fstat(fd), os.fstat(own)
                same = now.st_ino == before.st_ino and now.st_dev == before.st_dev
            except OSError:
                same = False
            if not same:
                os.dup2(own, fd)
        for name, fd in (("stdout", 1), ("stderr", 2)):
            stream = getattr(sys, name)
            if stream is None or getattr(stream, "closed", False):
                setattr(sys, name, open(fd, "w", encoding="utf-8", errors="backslashreplace",
                                        buffering=1, closefd=False))

    def drained():
        """Everything printed has been taken from the pipes: it stands before the end's record."""
        until = time.monotonic() + 2
        room = bytearray(4)
        while True:
            try:
                waiting = 0
                for fd in kept.values():
                    fcntl.ioctl(fd, termios.FIONREAD, room, True)
                    waiting += int.from_bytes(room, sys.byteorder)
            except OSError:
                return False
            if waiting == 0:
                return True
            if time.monotonic() > until:
                return False
            time.sleep(0.0003)

    def finish_threads():
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()

    def run(number, source):
        state.cell = state.last = number
        state.results = state.sent = 0
        state.pending = False
        restore_streams()
        signal.signal(signal.SIGINT, on_interrupt)
        state.before = frozenset(processes())
        record("begin", 0, "-")
        code = guarded(execute, number, source)
        guarded(show_figures)
        if once and not state.forked:
            code = code or guarded(finish_threads)
        flush()
        if state.forked:
            os._exit(code)
        if state.results > RESULTS_MAX:
            record("left", RESULTS_MAX, "results", b"%d" % (state.results - RESULTS_MAX))
        record("end", code, "drained" if drained() else "-")
        return code

    def unescape(data):
        parts = data.split(b"%")
        return parts[0] + b"".join(bytes((int(p[:2], 16),)) + p[2:] for p in parts[1:])

    signal.signal(signal.SIGINT, on_interrupt)
    while True:
        line = read_line()
        if line is None:
            break
        words = line.split(b" ")
        try:
            if words[0] == b"open" and len(words) in (2, 3):
                if control >= 0:
                    continue
                if len(words) == 3:
                    BYTES_MAX = min(BYTES_MAX, int(words[2]))
                    TEXT_MAX = min(TEXT_MAX, BYTES_MAX // 2)
                    ERROR_MAX = min(ERROR_MAX, BYTES_MAX // 16)
                control = os.open("/proc/%d/fd/1" % int(words[1]), os.O_WRONLY | os.O_CLOEXEC)
                record("ready", 0, "-", ("Python " + sys.version.split()[0]).encode())
                continue
            number, size, data = int(words[1]), int(words[2]), unescape(words[3])
        except (ValueError, IndexError):
            continue  # half a line of a daemon that is gone: it comes again, whole
        if words[0] != b"cell" or len(data) != size or number <= state.last:
            continue
        code = run(number, data.decode("utf-8", "replace"))
        if once:
            sys.exit(code)


caisson_driver()
