# The thin top of the build; Meson does the work. On a fresh Debian 12 `make run` and `make test` are
# all that is needed: each installs what it needs and is missing (as root, or through sudo).
BUILD ?= build
SANITIZED ?= build-asan
AARCH64 ?= build-aarch64
FAULTY ?= build-fault
FUZZED ?= build-fuzz
FUZZ_SECONDS ?= 60
PREFIX ?= /usr/local
# Each shell, and where below share/ it looks.
COMPLETIONS = bash:bash-completion/completions/caisson zsh:zsh/site-functions/_caisson fish:fish/vendor_completions.d/caisson.fish

.PHONY: all test-programs bench-programs deps deps-check deps-tests deps-all deps-bench deps-fuzz run check test test-all bench chart soak \
  install uninstall asan aarch64 faults fuzz fuzzers format clean
# In the order written: packages first, then one ninja at a time.
.NOTPARALLEL:

# The program, and nothing of the tests.
all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

test-programs bench-programs: $(BUILD)/build.ninja
	ninja -C $(BUILD) all $@

$(BUILD)/build.ninja:
	@command -v meson >/dev/null || tools/deps
	meson setup $(BUILD) --prefix=$(PREFIX) >/dev/null

deps:
	@tools/deps

deps-check deps-tests deps-all deps-bench deps-fuzz:
	@tools/deps --$(@:deps-%=%)

# The daemon in the foreground, one command proven in a sandbox, a token and snippets for clients.
run: deps all
	@tools/run $(BUILD)

# What each of the three runs, and how: docs/testing.md. They build by themselves, beside the first tests, and end with
# "N passed, N failed, N skipped". `test` is what a submission must pass; `test-all` every test on every build.
check: deps-check
	@tests/run --level check
test: deps-tests
	@tests/run --level test
test-all: deps-all
	@tests/run --level all

# Against peers in the same run; an idle machine, please. docs/performance.md says what the rows mean.
bench: deps-bench bench-programs
	@tests/bench/run $(BUILD) --chart $(BUILD)/latency.svg

# The chart of the last `make bench` becomes the one that README.md shows.
chart:
	@tests/bench/chart.py $(BUILD)/bench.json docs/latency.svg

# Does anything grow? 10,000 cycles and an hour of mixed load.
soak: deps all
	@tests/soak/run $(BUILD)

asan: $(SANITIZED)/build.ninja
	ninja -C $(SANITIZED) all test-programs

$(SANITIZED)/build.ninja:
	meson setup $(SANITIZED) --werror -Db_sanitize=address,undefined -Db_lundef=false -Dinit_sanitize=true >/dev/null

# The whole program for 64-bit ARM and the tests' programs; a warning ends it. On such a machine it is the normal build.
aarch64:
	@test "$$(uname -m)" = aarch64 || test -d $(AARCH64) || \
	  meson setup $(AARCH64) --cross-file cross/aarch64.ini --werror >/dev/null
	@test "$$(uname -m)" = aarch64 || ninja -C $(AARCH64) all test-programs

# The program with the moments built in at which tests/fault stops and kills it (src/base/fault.h).
faults: $(FAULTY)/build.ninja
	ninja -C $(FAULTY) caisson caisson-init

$(FAULTY)/build.ninja:
	meson setup $(FAULTY) --buildtype=debug --werror -Dfault_points=true >/dev/null

# Each fuzzer for FUZZ_SECONDS, from its corpus.
fuzz: deps-fuzz fuzzers
	@tests/fuzz/run $(FUZZED) $(FUZZ_SECONDS)

fuzzers:
	@test -d $(FUZZED) || CC=clang meson setup $(FUZZED) -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false >/dev/null
	ninja -C $(FUZZED) fuzzers

# DESTDIR is for packages. With root the user that the daemon runs as is made.
install: all
	meson configure $(BUILD) --prefix=$(PREFIX)
	meson install -C $(BUILD) --quiet --strip
	@set -e; for place in $(COMPLETIONS); do file=$(DESTDIR)$(PREFIX)/share/$${place#*:}; \
	  mkdir -p "$${file%/*}"; $(BUILD)/caisson completion $${place%%:*} > "$$file"; done
	@mkdir -p $(DESTDIR)$(PREFIX)/share/man/man1 && $(BUILD)/caisson _man $(DESTDIR)$(PREFIX)/share/man/man1
	@if [ "$$(id -u)" = 0 ] && [ -z "$(DESTDIR)" ] && ! getent passwd caisson >/dev/null; then \
	  useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin caisson && \
	  echo "made the system user caisson"; fi

# What `make install` put there; the configuration, the state and the user stay (docs/operations.md).
uninstall:
	ninja -C $(BUILD) uninstall
	@for place in $(COMPLETIONS); do rm -f $(DESTDIR)$(PREFIX)/share/$${place#*:}; done
	@rm -f $(DESTDIR)$(PREFIX)/share/man/man1/caisson.1 $(DESTDIR)$(PREFIX)/share/man/man1/caisson-*.1

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

clean:
	rm -rf $(BUILD) $(SANITIZED) $(AARCH64) $(FAULTY) $(FUZZED)
