# The thin top of the build; Meson does the work. On a fresh Debian 12 `make run` and `make test` are
# all that is needed: both install what is missing (as root, or through sudo).
BUILD ?= build
SANITIZED ?= build-asan
FUZZED ?= build-fuzz
FUZZ_SECONDS ?= 60
PREFIX ?= /usr/local

.PHONY: all deps run test check bench install asan fuzz format clean

all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@command -v meson >/dev/null || tools/deps
	meson setup $(BUILD) --prefix=$(PREFIX) >/dev/null

deps:
	@tools/deps

# The daemon in the foreground, one command proven in a sandbox, a token and snippets for clients.
run: deps all
	@tools/run $(BUILD)

# Every test, on the normal and on the sanitized build. Ends with "N passed, N failed, N skipped".
test: deps all asan
	@tests/run --build $(BUILD) --sanitized $(SANITIZED)

# The part of it that takes less than five minutes.
check: deps all
	@tests/run --build $(BUILD) --quick

bench: deps all
	@tests/bench/run $(BUILD)

asan: $(SANITIZED)/build.ninja
	ninja -C $(SANITIZED)

$(SANITIZED)/build.ninja:
	meson setup $(SANITIZED) -Db_sanitize=address,undefined -Db_lundef=false -Dinit_sanitize=true >/dev/null

# Each fuzzer for FUZZ_SECONDS, from its corpus.
fuzz: deps
	@test -d $(FUZZED) || CC=clang meson setup $(FUZZED) -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false >/dev/null
	ninja -C $(FUZZED)
	@tests/fuzz/run $(FUZZED) $(FUZZ_SECONDS)

# DESTDIR is for packages. With root the user that the daemon runs as is made.
install: all
	meson configure $(BUILD) --prefix=$(PREFIX)
	meson install -C $(BUILD) --quiet
	@if [ "$$(id -u)" = 0 ] && [ -z "$(DESTDIR)" ] && ! getent passwd caisson >/dev/null; then \
	  useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin caisson && \
	  echo "made the system user caisson"; fi

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

clean:
	rm -rf $(BUILD) $(SANITIZED) $(FUZZED)
