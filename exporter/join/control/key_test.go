package control

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestKey(t *testing.T) {
	for name, want := range map[string]KeyParts{
		"chatcmpl-omt-a1-e7c5d9d2_0_3": {
			Kind: KeyChunk, Name: "chatcmpl-omt-a1-e7c5d9d2_0_3", Request: "chatcmpl-omt-a1-e7c5d9d2", From: 0, To: None, Chunk: 3,
		},
		"chatcmpl-a_1_2-8a2fdadf_1_12": {
			Kind: KeyChunk, Name: "chatcmpl-a_1_2-8a2fdadf_1_12", Request: "chatcmpl-a_1_2-8a2fdadf", From: 1, To: None, Chunk: 12,
		},
		"a_1_2_0_7": {Kind: KeyChunk, Name: "a_1_2_0_7", Request: "a_1_2", From: 0, To: None, Chunk: 7},
		"__0_7":     {Kind: KeyChunk, Name: "__0_7", Request: "_", From: 0, To: None, Chunk: 7},
		"shm_x_0_1_lockfile.lock": {
			Kind: KeyLock, Name: "x_0_1", Request: "x", From: 0, To: None, Chunk: 1,
		},
		"shm_other_lockfile.lock": {Kind: KeyLock, Name: "other", From: None, To: None, Chunk: None},
		"shm_x_0_1":               {Kind: KeyChunk, Name: "shm_x_0_1", Request: "shm_x", From: 0, To: None, Chunk: 1},
		"omni_0_to_1_kv_cache_chatcmpl-a_3_4": {
			Kind: KeyKV, Name: "omni_0_to_1_kv_cache_chatcmpl-a_3_4", Request: "chatcmpl-a_3_4", From: 0, To: 1, Chunk: None,
		},
		"omni_0_to_1_kv_cache_r@0_1": {
			Kind: KeyKV, Name: "omni_0_to_1_kv_cache_r", Request: "r", From: 0, To: 1, Chunk: None,
		},
		"omni_0_to_x_kv_cache_r_0_1": {
			Kind: KeyChunk, Name: "omni_0_to_x_kv_cache_r_0_1", Request: "omni_0_to_x_kv_cache_r", From: 0, To: None, Chunk: 1,
		},
		"chatcmpl-omt-m1_0_0@0_1": {
			Kind: KeyChunk, Name: "chatcmpl-omt-m1_0_0", Request: "chatcmpl-omt-m1", From: 0, To: 1, Chunk: 0,
		},
		"r_1_5:1_2":  {Kind: KeyChunk, Name: "r_1_5", Request: "r", From: 1, To: 2, Chunk: 5},
		"rid/0_to_1": {Kind: KeyPayload, Name: "rid", Request: "rid", From: 0, To: 1, Chunk: None},
		"a@b@0_1":    {Kind: KeyPayload, Name: "a@b", Request: "a@b", From: 0, To: 1, Chunk: None},
		"x@0_1_2":    {Kind: KeyChunk, Name: "x@0_1_2", Request: "x@0", From: 1, To: None, Chunk: 2},
		"psm_b2e1be45": {
			Kind: KeyRandom, Name: "psm_b2e1be45", From: None, To: None, Chunk: None,
		},
		"psm_b2e1be45_0_1": {
			Kind: KeyChunk, Name: "psm_b2e1be45_0_1", Request: "psm_b2e1be45", From: 0, To: None, Chunk: 1,
		},
		"sem.mp-x_0_1": {Kind: KeySemaphore, Name: "sem.mp-x_0_1", From: None, To: None, Chunk: None},
	} {
		if k, ok := Key(name); !ok || k != want {
			t.Errorf("%s: %v %+v\nwant %+v", name, ok, k, want)
		}
	}
}

func TestKeyRefuses(t *testing.T) {
	for _, name := range []string{
		"", "_", "_0_1", "0_1", "a_0", "a_0_", "a__1", "a_x_1", "a_0_1x", "a-0-1", "@0_1", "/0_to_1",
		"a:0-1", "a/0_1", "psm_b2e1be4", "psm_B2E1BE45", "psm_b2e1be4g", "shm__lockfile.lock",
		"omni_0_to_1_kv_cache_", "a_0_1234567890123456789", "ucx_shm_posix_1f", "a_０_1", strings.Repeat("_", 255),
	} {
		if k, ok := Key(name); ok {
			t.Errorf("%q: %+v", name, k)
		}
	}
}

func TestExternal(t *testing.T) {
	for id, want := range map[string]string{
		"chatcmpl-trace-1-8a2fdadf":              "chatcmpl-trace-1",
		"chatcmpl-trace-1":                       "chatcmpl-trace-1",
		"speech-9ff76c7111f89cd6-9f3a482a":       "speech-9ff76c7111f89cd6",
		"speech-9ff76c7111f89cd6":                "speech-9ff76c7111f89cd6",
		"a-8a2fdadf-8a2fdadf":                    "a-8a2fdadf",
		"a-8A2FDADF":                             "a-8A2FDADF",
		"a_8a2fdadf":                             "a_8a2fdadf",
		"-8a2fdadf":                              "-8a2fdadf",
		"8a2fdadf":                               "8a2fdadf",
		"":                                       "",
		"b1e5c0de-0001-4000-8000-000000000001":   "b1e5c0de-0001-4000-8000-000000000001",
		"0_4f9b6c1e-8d53-4a3f-9b39-0b1d9f1b7a10": "0_4f9b6c1e-8d53-4a3f-9b39-0b1d9f1b7a10",
		"rt-ws-b1e5c0de-0001-4000-8000-00-1234abcd": "rt-ws-b1e5c0de-0001-4000-8000-00",
	} {
		if got := External(id); got != want {
			t.Errorf("External(%q) = %q, want %q", id, got, want)
		}
	}
}

// The forms as the servers' names were described: what Key must agree with.
var (
	reChunk    = regexp.MustCompile(`(?s)^(.+)_([0-9]{1,18})_([0-9]{1,18})$`)
	reKV       = regexp.MustCompile(`(?s)^omni_([0-9]{1,18})_to_([0-9]{1,18})_kv_cache_(.+)$`)
	reEdge     = regexp.MustCompile(`(?s)^(.+)(?:[@:]([0-9]{1,18})_([0-9]{1,18})|/([0-9]{1,18})_to_([0-9]{1,18}))$`)
	reExternal = regexp.MustCompile(`(?s)^(.+)-[0-9a-f]{8}$`)
)

func FuzzKey(f *testing.F) {
	for _, s := range []string{
		"chatcmpl-omt-a1-e7c5d9d2_0_3", "shm_x_0_1_lockfile.lock", "omni_0_to_1_kv_cache_r@0_1", "rid/0_to_1",
		"r_1_5:1_2", "psm_b2e1be45", "sem.mp-x", "a_0_1234567890123456789",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		k, ok := Key(name)
		if ext := External(name); ext != name && reExternal.ReplaceAllString(name, "$1") != ext {
			t.Errorf("External(%q) = %q", name, ext)
		}
		if !ok || k.Kind == KeyLock || k.Kind == KeyRandom || k.Kind == KeySemaphore {
			return
		}
		rest := name
		if m := reEdge.FindStringSubmatch(name); m != nil {
			rest = m[1]
		}
		if k.Name != rest {
			t.Fatalf("%q: name %q, want %q", name, k.Name, rest)
		}
		switch k.Kind {
		case KeyChunk:
			m := reChunk.FindStringSubmatch(rest)
			if m == nil || k.Request != m[1] || number(m[2]) != k.From || number(m[3]) != k.Chunk {
				t.Errorf("%q: %+v, want %q", name, k, m)
			}
		case KeyKV:
			m := reKV.FindStringSubmatch(rest)
			if m == nil || k.Request != m[3] || number(m[1]) != k.From || number(m[2]) != k.To {
				t.Errorf("%q: %+v, want %q", name, k, m)
			}
		case KeyPayload:
			if k.Request != rest {
				t.Errorf("%q: %+v", name, k)
			}
		default:
			t.Errorf("%q: kind %d", name, k.Kind)
		}
	})
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func BenchmarkKey(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := Key("chatcmpl-omt-a1-e7c5d9d2_0_3"); !ok {
			b.Fatal("not a key")
		}
	}
}
