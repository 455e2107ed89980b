/* The life of a connection and of a body as tables: each pair of state and event. */
#include "http/state.h"

#include "base/macros.h"
#include "test.h"

TEST_MAIN

/* A letter for each event, in the order of enum http_event (the client's, the handler's, ours): the
 * state that follows, and what is to be done. */
static const struct {
	char letter;
	const char *next, *actions;
} expected[] = {
    [HTTP_HANDSHAKE] = {'t', "htt tttttt xxctttt", "d.c ...... wwd...."},
    [HTTP_HEAD] = {'h', "han hhhhhh nxchhnh", ".dd ...... dwd..d."},
    [HTTP_ASKED] = {'a', "aaa dguaax rbcaaaa", "..c ddd.!d dwt...."},
    [HTTP_ANSWERING] = {'g', "ggg ggggdx bbcgggg", "..c !!!ddd wwt...."},
    [HTTP_UPGRADED] = {'u', "uuu uuuudx bbcuuuu", "..t !!!ddd wwt...."},
    [HTTP_REFUSED] = {'r', "rrr drrrdd rbcrrnr", "..c l...ll .wt..t."},
    [HTTP_BROKEN] = {'b', "bbb xbbbxx bbcbbbb", "..c l...ll ..t...."},
    [HTTP_ANSWERED] = {'d', "ddd dddddd dxchsnd", "..c ...... .wdddd."},
    [HTTP_SKIP] = {'s', "ssn ssssss xxchsns", "..d ...... wwdd.d."},
    [HTTP_DRAIN] = {'n', "nnn nnnnnn xxcnnnl", "..c ...... wwd...d"},
    [HTTP_LINGER] = {'l', "lll llllll xxcllll", "..c ...... wwd...."},
    [HTTP_ABORTED] = {'x', "xxx xxxxxx xxcxxxx", "..c ...... ..d...."},
    [HTTP_CLOSED] = {'c', "ccc cccccc ccccccc", "... ...... ......."},
};

TEST(each_event_in_each_state)
{
	static const char actions[] = {
	    [HTTP_ACTION_NONE] = '.', [HTTP_ACTION_DEFECT] = '!', [HTTP_ACTION_CLOSE] = 'c',
	    [HTTP_ACTION_DO] = 'd',   [HTTP_ACTION_TELL] = 't',   [HTTP_ACTION_LEAVE] = 'l',
	    [HTTP_ACTION_WAKE] = 'w',
	};
	CHECK_INT(ARRAY_SIZE(expected), HTTP_STATES);
	for (int state = 0; state < HTTP_STATES; state++) {
		char next[HTTP_EVENTS + 3] = "", done[HTTP_EVENTS + 3] = "";
		size_t at = 0;
		for (int event = 0; event < HTTP_EVENTS; event++) {
			enum http_state to = (enum http_state)state;
			if (event == HTTP_EVENT_RESPOND || event == HTTP_EVENT_REFUSE) {
				next[at] = ' ';
				done[at++] = ' ';
			}
			done[at] = actions[http_state_step(&to, (enum http_event)event)];
			next[at++] = expected[to].letter;
		}
		CHECK_TEXT(next, expected[state].next);
		CHECK_TEXT(done, expected[state].actions);
	}
}

TEST(facts_of_each_state)
{
	for (int at = 0; at < HTTP_STATES; at++) {
		enum http_state state = (enum http_state)at;
		CHECK_INT(http_state_open(state),
			  state == HTTP_ASKED || state == HTTP_ANSWERING || state == HTTP_UPGRADED);
		CHECK_INT(http_state_ends(state),
			  state == HTTP_BROKEN || state == HTTP_ABORTED || state == HTTP_CLOSED);
	}
}

/* Whose handler is still to be told that its client has gone is told once, however it ends. */
TEST(a_handler_is_told_once)
{
	static const enum http_event ends[] = {HTTP_EVENT_BREAK, HTTP_EVENT_REFUSE, HTTP_EVENT_LAST,
					       HTTP_EVENT_LOSE};
	for (int start = HTTP_ASKED; start <= HTTP_BROKEN; start++)
		for (size_t first = 0; first < ARRAY_SIZE(ends); first++)
			for (size_t second = 0; second < ARRAY_SIZE(ends); second++) {
				enum http_state state = (enum http_state)start;
				int told = 0;
				told += http_state_step(&state, ends[first]) == HTTP_ACTION_TELL;
				told += http_state_step(&state, ends[second]) == HTTP_ACTION_TELL;
				told +=
				    http_state_step(&state, HTTP_EVENT_LOSE) == HTTP_ACTION_TELL;
				CHECK_INT(told, 1);
				CHECK_INT(state, HTTP_CLOSED);
			}
}

TEST(each_event_of_a_body)
{
	static const struct {
		const char *next;
		bool complete;
	} bodies[] = {
	    [HTTP_BODY_NONE] = {"w..", true},     [HTTP_BODY_UNASKED] = {"ro.", false},
	    [HTTP_BODY_READING] = {".w.", false}, [HTTP_BODY_WHOLE] = {"..o", true},
	    [HTTP_BODY_OVER] = {"...", true},
	};
	static const char letters[] = "nurwo";
	CHECK_INT(ARRAY_SIZE(bodies), HTTP_BODY_STATES);
	for (int state = 0; state < HTTP_BODY_STATES; state++) {
		char next[HTTP_BODY_EVENTS + 1] = "";
		for (int event = 0; event < HTTP_BODY_EVENTS; event++) {
			enum http_body_state to = (enum http_body_state)state;
			bool possible = http_body_step(&to, (enum http_body_event)event);
			next[event] = possible ? letters[to] : '.';
			CHECK(possible || (int)to == state);
		}
		CHECK_TEXT(next, bodies[state].next);
		CHECK_INT(http_body_complete((enum http_body_state)state), bodies[state].complete);
	}
}
