# The interpreter of a bash code context: an interactive bash without a terminal reads its commands
# from the request channel, each of which is one call of __caisson_cell with the code as one word
# (core/code/records.h). Interactive, because only such a bash goes back to its prompt when it is
# interrupted, with every variable and function kept. Runs inside the sandbox, as its rc file.
#
# Descriptor 60 is the control channel, 58 and 59 are the streams that every cell begins with; 61 is standard error while bash says at its start that it has
# no terminal.
exec 2>&61 61>&-
unset CAISSON_DRIVER
PS1= PS2=
set +o history +H
__caisson_last=0
__caisson_running=
__caisson_code=

__caisson_open() {
	[[ $__caisson_opened ]] && return
	exec 60>"/proc/$1/fd/1" 58>&1 59>&2 || builtin exit 70
	exec 2>/dev/null # where bash itself says a blank line when it is interrupted
	__caisson_opened=1
	local version="bash ${BASH_VERSION%%(*}"
	printf 'ready 0 0 - %d\n%s\n' "${#version}" "$version" >&60
}

__caisson_end() {
	printf 'end %d %d - 0\n\n' "$__caisson_running" "$1" >&60
	__caisson_running=
}

# Before each prompt: a cell that never came to its end was interrupted, or has called exit.
__caisson_prompt() {
	PS1= PS2=
	[[ $__caisson_running ]] && __caisson_end "${__caisson_code:-130}"
}
PROMPT_COMMAND=__caisson_prompt

# The cell ends with that code; its context goes on.
exit() {
	local code=${1:-$?}
	[[ $BASHPID != "$$" || ! $__caisson_running ]] && builtin exit "$code"
	__caisson_code=$((code & 255))
	kill -INT "$$"
}

__caisson_cell() {
	(($1 > __caisson_last)) || return 0
	__caisson_last=$1
	__caisson_code=
	__caisson_running=$1
	printf 'begin %d 0 - 0\n\n' "$1" >&60
	printf -v __caisson_source %b "${3//%/\\x}"
	eval "$__caisson_source" </dev/null >&58 2>&59 58>&- 59>&- 60>&-
	__caisson_end $?
}
