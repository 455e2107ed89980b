/* Only in the build with sanitizers: their options inside a sandbox. No leak check, which would
 * have to trace PID 1; no symbolizer, so that no file of the sandbox is read. */

const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

const char *__asan_default_options(void)
{
	return "detect_leaks=0:abort_on_error=1:symbolize=0:handle_segv=1:"
	       "allocator_may_return_null=1";
}

const char *__ubsan_default_options(void)
{
	return "print_stacktrace=0:symbolize=0";
}
