/* A filter as the kernel would run it, for calls of any architecture. */
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* -1 where the program does something that a filter of ours never does. */
static int64_t interpret(const struct sock_filter *code, size_t count,
			 const struct seccomp_data *data)
{
	uint32_t word = 0;
	for (size_t at = 0; at < count; at++) {
		const struct sock_filter *step = &code[at];
		switch (step->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			if (step->k % 4 != 0 || step->k + 4 > sizeof(*data))
				return -1;
			memcpy(&word, (const char *)data + step->k, sizeof(word));
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			word &= step->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			at += word == step->k ? step->jt : step->jf;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			at += word >= step->k ? step->jt : step->jf;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			at += word & step->k ? step->jt : step->jf;
			break;
		case BPF_JMP | BPF_JA:
			at += step->k;
			break;
		case BPF_RET | BPF_K:
			return step->k;
		default:
			return -1;
		}
	}
	return -1;
}
