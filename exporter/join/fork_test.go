package join

import "testing"

// preprocessing hands the same payload to thinker and talker; talker also hears from
// thinker, later.
func forked() []Transfer {
	return []Transfer{
		{From: "preprocessing", To: "thinker", Bytes: 4000, RxStart: 100, RxEnd: 110},
		{From: "preprocessing", To: "talker", Bytes: 4000, RxStart: 105, RxEnd: 120},
		{From: "thinker", To: "talker", Chunk: 0, Bytes: 300, RxStart: 400, RxEnd: 420},
		{From: "thinker", To: "talker", Chunk: 1, Bytes: 300, RxStart: 500, RxEnd: 520},
		{From: "thinker", To: "decode", Bytes: -1, Heard: 450},
		{From: "talker", To: "code2wav", Bytes: 50, Unread: true},
		{From: "talker", To: roleAPI, Bytes: 50, RxEnd: 600},
	}
}

func TestForks(t *testing.T) {
	for name, want := range map[string]Fork{
		"preprocessing": {FanOut: 2, Copied: 4000, JoinWaitNS: -1},
		"thinker":       {FanOut: 2, Copied: -1, JoinWaitNS: -1}, // one hand-over states no bytes
		"talker":        {FanOut: 0, Copied: -1, JoinWaitNS: 300},
		"decode":        {FanOut: 0, Copied: -1, JoinWaitNS: -1},
	} {
		if got := forkOf(name, forked()); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
